package store

import (
	"cmp"
	"slices"
	"time"
)

// ParkedLimit is where counts of parked deliveries stop, so that they take no longer with a
// million of them.
const ParkedLimit = 10_000

// ParkedFigures is what is parked for one sink. Each count stops at ParkedLimit.
type ParkedFigures struct {
	Sink string
	// States has each state once, also where there is nothing in it.
	States []ParkedState
	// Overdue is how many were due more than a minute ago, and LongestDue for how long the first of
	// them has been due.
	Overdue    int
	LongestDue time.Duration
	// DeadKeys is over how many keys the dead are; under on_dead: halt these are the keys that wait
	// for a person.
	DeadKeys int
	// Hooks is how many wait for a hook that has failed, and HookError is one of those failures.
	Hooks     int
	HookError string
}

// ParkedState is what is parked in one state.
type ParkedState struct {
	State State
	Count int
	// Oldest is when the first of them was parked for the first time; zero if there is none, and
	// for cancelled ones, which count among the scheduled there.
	Oldest time.Time
	// HookError is why a hook failed for one of them; "" if none did.
	HookError string
}

// Count is how many are in a state.
func (f ParkedFigures) Count(state State) int {
	for _, s := range f.States {
		if s.State == state {
			return s.Count
		}
	}
	return 0
}

// ParkedCounts are the counts above 0 of figures, in their order and by state.
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
