package forwarder

import (
	"math"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
)

// Breaker says when a sink waits as a whole because its destination fails.
//
// It opens when the destination cannot be reached (sinks.Unavailable), and when
// nearly all recent attempts over different keys failed for the moment, as at an
// endpoint that answers 500 to everything. While it is open nothing is parked and
// no attempt is spent: single deliveries probe the destination, after pauses that
// grow from 100 ms to MaxPause, until one gets through.
type Breaker struct {
	// FailureShare of the last Among attempts opens it; default 0.9, more than 0,
	// at most 1. Of several failures of one key only the first counts.
	FailureShare float64
	Among        int           // default 20, 1 to 10,000
	MaxPause     time.Duration // default 5 s, at least 100 ms
	// Off has it open only for a destination that cannot be reached.
	Off bool
}

// Defaults of a Breaker.
const (
	DefaultFailureShare = 0.9
	DefaultAmong        = 20
	DefaultMaxPause     = 5 * time.Second
)

const (
	firstPause = 100 * time.Millisecond
	maxAmong   = 10_000
)

func (b Breaker) withDefaults() Breaker {
	setDefault(&b.FailureShare, DefaultFailureShare)
	setDefault(&b.Among, DefaultAmong)
	setDefault(&b.MaxPause, DefaultMaxPause)
	return b
}

func (b Breaker) validate(p *problems, at string) {
	p.require(b.FailureShare > 0 && b.FailureShare <= 1, "%s.failure_share is %g: use more than 0, at most 1", at, b.FailureShare)
	p.require(b.Among >= 1 && b.Among <= maxAmong, "%s.among is %d: use 1 to %d", at, b.Among, maxAmong)
	p.require(b.MaxPause >= firstPause, "%s.max_pause is %s: use at least %s", at, b.MaxPause, firstPause)
}

// gate holds all deliveries of a sink back while its destination fails or asks to
// wait. It is guarded by its courier's mutex.
//
// The breaker in it is closed while deliveries flow; open while none starts; and
// half-open while one is let through, whose outcome closes it or opens it for
// longer. What was in flight when it opened proves nothing any more.
type gate struct {
	config  Breaker
	breaker circuitbreaker.CircuitBreaker[any]
	pace    *backoff.ExponentialBackOff

	throttled time.Time // nothing starts before
	since     time.Time // it is open; zero while it is closed
	probeAt   time.Time // no probe before
	cause     error     // why
	failing   bool      // since deliveries failed, be the destination reachable or not
	failed    []string  // keys of the last failures that counted, the oldest first
}

func newGate(config Breaker) gate {
	pace := Retry{Initial: firstPause, Multiplier: 2, Max: config.MaxPause, Jitter: 0.2}.backOff()
	among := uint(config.Among)
	return gate{
		config: config,
		pace:   pace,
		breaker: circuitbreaker.NewBuilder[any]().
			WithFailureThresholdRatio(uint(math.Ceil(config.FailureShare*float64(config.Among))), among).
			WithSuccessThreshold(1).
			WithDelay(0). // its own is fixed where no execution is at hand: probeAt is ours
			Build(),
	}
}

// open says that deliveries flow.
func (g *gate) open() bool { return g.since.IsZero() }

// limit is how many deliveries may be in flight at now, out of n.
func (g *gate) limit(n int, now time.Time) int {
	switch {
	case now.Before(g.throttled):
		return 0
	case g.open():
		return n
	case now.Before(g.probeAt):
		return 0
	}
	return 1
}

// reopens is when limit should be asked again.
func (g *gate) reopens() time.Time { return later(g.throttled, g.probeAt) }

// starts takes note that a delivery begins.
func (g *gate) starts() {
	if !g.open() {
		g.breaker.HalfOpen()
	}
}

// stray says that an outcome is of a delivery that was in flight when the gate
// closed.
func (g *gate) stray() bool { return g.breaker.IsOpen() }

// wait lets nothing start before a time, if that is later than what it waits for.
// It returns true where it did not wait.
func (g *gate) wait(until, now time.Time) (began bool) {
	began = !now.Before(g.throttled)
	if until.After(g.throttled) {
		g.throttled = until
	}
	return began
}

// delivered takes note that the destination took a delivery, or refused it with
// reason. It returns true where that ended an outage.
func (g *gate) delivered() (ended bool) {
	switch {
	case g.stray():
		return false
	case g.open():
		g.breaker.RecordSuccess()
		return false
	}
	g.close()
	return true
}

// unreached says that an outage goes on in which the destination could not be reached.
func (g *gate) unreached() bool { return !g.open() && !g.failing }

// answered takes note that the destination was reached, and returns true where that
// ended an outage.
func (g *gate) answered() (ended bool) {
	if g.open() || g.failing || g.stray() {
		return false
	}
	g.close()
	return true
}

func (g *gate) close() {
	g.breaker.Close()
	g.pace.Reset()
	g.since, g.probeAt, g.cause, g.failing, g.failed = time.Time{}, time.Time{}, nil, false, nil
}

// unavailable takes note that the destination could not be reached, and returns
// true where that began an outage.
func (g *gate) unavailable(now time.Time, err error) (began bool) {
	if g.stray() {
		return false
	}
	g.breaker.Open()
	return g.opened(now, err)
}

// failure takes note that a delivery of a key failed for the moment. It returns
// whether that spends an attempt, and whether it began an outage.
func (g *gate) failure(now time.Time, key string, err error) (spent, began bool) {
	switch {
	case g.failing && g.stray():
		return false, false
	case g.failing:
		g.breaker.RecordFailure()
		return false, g.opened(now, err)
	case g.stray() || g.config.Off || slices.Contains(g.failed, key):
		return true, false
	}
	if len(g.failed) == g.config.Among {
		g.failed = slices.Delete(g.failed, 0, 1)
	}
	g.failed = append(g.failed, key)
	g.breaker.RecordFailure()
	if !g.breaker.IsOpen() {
		return true, false
	}
	g.failing = true
	return true, g.opened(now, err)
}

// opened takes note that the breaker has opened, and returns true where it had
// been closed.
func (g *gate) opened(now time.Time, err error) (began bool) {
	began = g.open()
	if began {
		g.since = now
	}
	g.cause, g.probeAt = err, now.Add(g.pace.NextBackOff())
	return began
}
