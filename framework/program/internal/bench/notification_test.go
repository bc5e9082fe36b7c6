package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestIDsOfOtherBatchesAreUnknown(t *testing.T) {
	t.Parallel()
	tally := newTally(batch{tag: "1-"})
	others := []string{"", "1", "1-", "2-0", "1-x", "1-00", "1-+1", "1--1", "1-1 ", "1-99999999999999999999", "1-268435456", "01-1"}
	for _, id := range others {
		tally.take(id)
	}
	require.EqualValues(t, len(others), tally.Check(0).Unknown)
}

func TestAwaitEndsIfNothingArrives(t *testing.T) {
	t.Parallel()
	tally := newTally(batch{tag: "1-"})
	tally.take("1-0")
	require.True(t, tally.await(t.Context(), 1, time.Minute))
	require.False(t, tally.await(t.Context(), 2, 20*time.Millisecond))
}
