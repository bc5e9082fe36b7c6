package simulation

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestEventsHappenInTheirOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type planned struct {
			at    time.Duration
			order int
		}
		var e events[planned]
		var waiting []planned
		steps := rapid.SliceOf(rapid.IntRange(-5, 20)).Draw(t, "steps") // below 0: the next event happens
		for order, step := range steps {
			if step >= 0 {
				p := planned{e.now + time.Duration(step), order}
				e.add(p.at, p)
				waiting = append(waiting, p)
				slices.SortStableFunc(waiting, func(a, b planned) int { return int(a.at - b.at) })
				continue
			}
			got, ok := e.pop(1000)
			require.Equal(t, len(waiting) > 0, ok)
			if ok {
				require.Equal(t, waiting[0], got)
				require.Equal(t, got.at, e.now)
				waiting = waiting[1:]
			}
		}
	})
	var e events[string]
	e.add(5, "in five")
	_, ok := e.pop(5)
	require.False(t, ok, "it is not before the end")
}

func TestQuantilesOfAHistogram(t *testing.T) {
	t.Parallel()
	var h, other histogram
	require.Zero(t, h.quantile(0.5))
	for i := range 1000 {
		h.note(time.Duration(i+1) * time.Millisecond)
	}
	other.note(time.Hour)
	h.add(&other)
	require.InEpsilon(t, 500*time.Millisecond, h.quantile(0.5), 0.03)
	require.InEpsilon(t, 990*time.Millisecond, h.quantile(0.99), 0.03)
	require.InEpsilon(t, time.Hour, h.quantile(1), 0.03)
}
