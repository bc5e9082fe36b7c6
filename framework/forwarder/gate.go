package forwarder

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

// gate holds all deliveries of a sink back while its destination cannot be
// reached or asks to wait. It is guarded by its courier's mutex.
//
// Open: deliveries flow. Closed: none starts before reopens. Probing: after an
// outage one delivery is let through; its outcome opens the gate or closes it
// for longer.
type gate struct {
	reopens time.Time // zero while open
	probing bool
	pace    *backoff.ExponentialBackOff
}

func newGate() gate { return gate{pace: reconnect()} }

// limit is how many deliveries may be in flight at now, out of n.
func (g *gate) limit(n int, now func() time.Time) int {
	if !g.reopens.IsZero() && now().Before(g.reopens) {
		return 0
	}
	g.reopens = time.Time{}
	if g.probing {
		return 1
	}
	return n
}

// unavailable closes the gate for a growing interval. Deliveries that were in
// flight together report the same outage: only the first of them counts. It
// returns true where this report began the outage.
func (g *gate) unavailable(now time.Time) (began bool) {
	if !g.reopens.IsZero() {
		return false
	}
	began = !g.probing
	g.probing = true
	g.reopens = now.Add(g.pace.NextBackOff())
	return began
}

// throttled closes the gate until a time, if that is later than what it waits for.
// It returns true where the gate was open.
func (g *gate) throttled(until time.Time) (began bool) {
	began = g.reopens.IsZero()
	if until.After(g.reopens) {
		g.reopens = until
	}
	return began
}

// reached opens the gate after a delivery came through to the destination,
// whatever it answered. It returns true where that ended an outage.
func (g *gate) reached() (ended bool) {
	if !g.probing || !g.reopens.IsZero() {
		return false // one that was in flight before the outage proves nothing
	}
	g.probing = false
	g.pace.Reset()
	return true
}
