package store

import (
	"cmp"
	"slices"
	"time"
)

// ParkedLimit is where counts of parked deliveries stop, so that they stay fast with millions of
// them.
const ParkedLimit = 10_000

// ParkedFigures counts the parked deliveries of one sink. Each count stops at ParkedLimit.
type ParkedFigures struct {
	Sink string
	// States has one entry for each state, even if it is empty.
	States []ParkedState
	// Overdue is how many have been due for more than a minute, and LongestDue how long the first
	// of them has been due.
	Overdue    int
	LongestDue time.Duration
	// DeadKeys is the number of keys with dead deliveries. Under on_dead: halt these keys wait
	// for a person.
	DeadKeys int
	// Hooks is how many wait for a failed hook, and HookError one of the errors.
	Hooks     int
	HookError string
}

// ParkedState counts the parked deliveries in one state.
type ParkedState struct {
	State State
	Count int
	// Oldest is when the first of them was first parked; zero if there is none, and for
	// cancelled ones, which are included in the scheduled ones there.
	Oldest time.Time
	// HookError is the error of a failed hook of one of them; "" if none failed.
	HookError string
}

// Count returns how many deliveries are in a state.
func (f ParkedFigures) Count(state State) int {
	for _, s := range f.States {
		if s.State == state {
			return s.Count
		}
	}
	return 0
}

// ParkedCounts returns the counts above 0, by sink and state.
func ParkedCounts(figures []ParkedFigures) (counts []ParkedCount) {
	for _, f := range figures {
		from := len(counts)
		for _, s := range f.States {
			if s.Count > 0 {
				counts = append(counts, ParkedCount{Sink: f.Sink, State: s.State, Count: int64(s.Count), HookError: s.HookError})
			}
		}
		slices.SortFunc(counts[from:], func(a, b ParkedCount) int { return cmp.Compare(a.State, b.State) })
	}
	return counts
}
