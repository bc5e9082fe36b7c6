package presence

import (
	"sync"
	"time"
)

// Gate says whether deliveries may begin in one database. While the forwarder's row names a session, others
// may take its lanes some time after that session has ended: so none begins unless the session has answered
// lately. It is open while the row names none. The zero value is open, and a nil Gate always is.
type Gate struct {
	mu       sync.Mutex
	term     int64     // counts the evictions of this forwarder
	promised bool      // the row names a session, or may name it
	until    time.Time // while promised: when the session's last answer no longer counts
	waiting  []func()
}

// Term is the time between two evictions. Leases that were requested in an earlier one are lost. The zero
// value is never over, and its gate is open.
type Term struct {
	gate   *Gate
	number int64
}

// Term returns the present term.
func (g *Gate) Term() Term {
	if g == nil {
		return Term{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return Term{g, g.term}
}

// Check reports whether a delivery may begin now under a lease of the term. If it may not yet, again is called
// once when that has changed; it must not block. over means that the lease is lost.
func (t Term) Check(now time.Time, again func()) (open, over bool) {
	g := t.gate
	if g == nil {
		return true, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.term != t.number:
		return false, true
	case g.promised && expired(now, g.until):
		g.waiting = append(g.waiting, again)
		return false, false
	}
	return true, false
}

// Promise lets deliveries begin only until the time, since the row may name a session from now on, or since
// the session has answered.
func (g *Gate) Promise(until time.Time) { g.change(func() { g.promised, g.until = true, until }) }

// Free lets the leases alone decide, since the row names no session.
func (g *Gate) Free() { g.change(func() { g.promised = false }) }

// Evicted ends the term: the row did not name the session any more.
func (g *Gate) Evicted() { g.change(func() { g.promised, g.term = false, g.term+1 }) }

func (g *Gate) change(do func()) {
	g.mu.Lock()
	do()
	waiting := g.waiting
	g.waiting = nil
	g.mu.Unlock()
	for _, again := range waiting {
		again()
	}
}

// expired reports whether a time is over by one of the clocks: the monotonic one stops while a machine is
// suspended, and setting the wall clock back must not extend a promise.
func expired(now, until time.Time) bool {
	return now.After(until) || now.Round(0).After(until.Round(0))
}
