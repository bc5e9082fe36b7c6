package mysql

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAProbeWhoseContextHasEndedDoesNotLockOthersOut(t *testing.T) {
	t.Parallel()
	tracker := newTracker(nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // a select with two ready cases takes either
		if tracker.lock(ended) == nil {
			tracker.unlock()
		}
		require.Empty(t, tracker.busy)
	}
}
