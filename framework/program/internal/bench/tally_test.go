package bench

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestATallyCountsEachIDOnceUnderConcurrency(t *testing.T) {
	t.Parallel()
	const ids, times = 200_000, 4
	tally := newTally(batch{tag: "1-"})
	var adding sync.WaitGroup
	for range times {
		adding.Go(func() {
			for n := range ids {
				tally.take(tally.id(n))
			}
		})
	}
	require.True(t, tally.await(t.Context(), ids, time.Minute))
	adding.Wait()
	require.Equal(t, Check{Sink: "s", Counted: "c", Expected: ids, Arrived: ids, Repeated: ids * (times - 1)}, tally.check("s", "c", ids))
}

func TestATallyAgreesWithASet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tally := newTally(batch{tag: "1-"})
		expected := rapid.IntRange(0, 50).Draw(t, "expected")
		seen := make(map[int]bool)
		var want Check
		for _, n := range rapid.SliceOf(rapid.IntRange(0, 70)).Draw(t, "ids") {
			switch {
			case seen[n]:
				want.Repeated++
			case n < expected:
				want.Arrived++
			default:
				want.Unknown++
			}
			seen[n] = true
			tally.take(tally.id(n))
		}
		want.Expected = int64(expected)
		want.Lost = want.Expected - want.Arrived
		require.Equal(t, want, tally.check("", "", expected))
	})
}

func TestIDsOfOtherBatchesAreUnknown(t *testing.T) {
	t.Parallel()
	tally := newTally(batch{tag: "1-"})
	others := []string{"", "1", "1-", "2-0", "1-x", "1-00", "1-+1", "1--1", "1-1 ", "1-99999999999999999999", "1-268435456", "01-1"}
	for _, id := range others {
		tally.take(id)
	}
	require.Equal(t, Check{Unknown: int64(len(others))}, tally.check("", "", 0))
}

func TestAwaitEndsIfNothingArrives(t *testing.T) {
	t.Parallel()
	tally := newTally(batch{tag: "1-"})
	tally.take("1-0")
	require.True(t, tally.await(t.Context(), 1, time.Minute))
	require.False(t, tally.await(t.Context(), 2, 20*time.Millisecond))
}
