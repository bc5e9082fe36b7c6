package machine

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestThrottledTimeIsReadFromCPUStat(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1500*time.Millisecond, throttledIn([]byte("usage_usec 7\nnr_throttled 3\nthrottled_usec 1500000\nnr_bursts 0\n")))
	require.Zero(t, throttledIn([]byte("usage_usec 7\n")))
}

func TestTheMachineWasBusyWhileThisProcessWas(t *testing.T) {
	t.Parallel()
	before, ok := Used()
	if !ok {
		t.Skip("no /proc")
	}
	own := CPU(os.Getpid())
	for CPU(os.Getpid()) < own+200*time.Millisecond { // uses the processor
	}
	after, _ := Used()
	require.Greater(t, after.Since(before).Busy, 100*time.Millisecond)
}
