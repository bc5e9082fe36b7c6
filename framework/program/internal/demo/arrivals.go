package demo

import (
	"sync"
	"time"
)

// arrivals has what one receiver got. It is safe for concurrent use.
type arrivals struct {
	mu      sync.Mutex
	first   []arrival // in the order in which they came
	seen    map[string]bool
	repeats int
	refused int
}

// arrival is the first arrival of an id.
type arrival struct {
	id string
	at time.Time
}

func newArrivals() *arrivals { return &arrivals{seen: make(map[string]bool)} }

// add counts a notification that the receiver has accepted.
func (a *arrivals) add(id string) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen[id] {
		a.repeats++
		return
	}
	a.seen[id] = true
	a.first = append(a.first, arrival{id: id, at: now})
}

// refuse counts an attempt that the receiver has refused.
func (a *arrivals) refuse() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused++
}

// distinct returns how many different ids have arrived.
func (a *arrivals) distinct() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.first)
}
