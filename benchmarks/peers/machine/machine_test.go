package machine

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
