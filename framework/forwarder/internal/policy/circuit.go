package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
)

// Circuit applies a Breaker, and the throttle that a destination asks for: it holds all
// deliveries back while the destination fails or asks to wait. It is for one goroutine
// at a time.
//
// The breaker is closed while deliveries flow, open while none starts, and half-open
// while one probe is in flight, whose outcome closes it or opens it for longer. What was
// in flight when the breaker opened proves nothing any more.
type Circuit struct {
	config  Breaker
	breaker circuitbreaker.CircuitBreaker[any]
	pace    *backoff.ExponentialBackOff
	chance  func() float64 // by which pauses vary

	throttled time.Time // nothing starts before
	asked     error     // what it was throttled by last
	since     time.Time // the breaker is open; zero while it is closed
	probeAt   time.Time // no probe before
	cause     error     // why
	failing   bool      // it opened since deliveries failed, be the destination reachable or not
	failed    []string  // keys of the last failures that counted, the oldest first
	refused   []string  // keys of the deliveries that were refused for good since one got through, no more than count
	recovered int       // how often a delivery that got through has closed the breaker
}

// probeJitter is by how much of itself a pause between two probes is shorter or longer.
const probeJitter = 0.2

// maxPostponed bounds for how long a delivery is put off since its destination is away.
const maxPostponed = 5 * time.Minute

// refusals is how many keys in a row whose deliveries are refused for good open the
// breaker: so many mistakes of notifications are rather one of the sink.
const refusals = 10

// NewCircuit returns a circuit whose breaker is closed. The settings have their
// defaults.
func NewCircuit(config Breaker) *Circuit { return NewCircuitBy(config, rand.Float64) }

// NewCircuitBy returns one whose pauses vary by a chance of the caller's: numbers from 0 to
// 1, 1 not included.
func NewCircuitBy(config Breaker, chance func() float64) *Circuit {
	c := &Circuit{chance: chance}
	c.Adjust(config)
	return c
}

// Adjust takes over other settings, with their defaults, and closes the breaker. A
// throttle goes on.
func (c *Circuit) Adjust(config Breaker) {
	among := uint(config.Among)
	*c = Circuit{
		config: config,
		pace:   Retry{Initial: firstPause, Multiplier: 2, Max: config.MaxPause}.backOff(),
		chance: c.chance,
		breaker: circuitbreaker.NewBuilder[any]().
			WithFailureThresholdRatio(uint(math.Ceil(config.FailureShare*float64(config.Among))), among).
			WithSuccessThreshold(1).
			WithDelay(0). // its own is fixed where no execution is at hand: probeAt is ours
			Build(),
		throttled: c.throttled,
		asked:     c.asked,
		recovered: c.recovered,
	}
}

// IsOpen says whether the breaker is open: nothing starts but a probe now and then.
func (c *Circuit) IsOpen() bool { return !c.since.IsZero() }

// OpenSince is when the breaker opened; zero while it is closed.
func (c *Circuit) OpenSince() time.Time { return c.since }

// Cause is the error that the breaker last opened for; nil while it is closed.
func (c *Circuit) Cause() error { return c.cause }

// ThrottledUntil is the time before which nothing starts because the destination
// asked to wait. It may be past, or zero.
func (c *Circuit) ThrottledUntil() time.Time { return c.throttled }

// ThrottledBy is the error with which the destination last asked to wait; nil: it never did.
func (c *Circuit) ThrottledBy() error { return c.asked }

// NoLimit is a limit that is none.
const NoLimit = math.MaxInt

// Limit is how many deliveries may be in flight at now, out of n.
func (c *Circuit) Limit(n int, now time.Time) int {
	switch {
	case now.Before(c.throttled):
		return 0
	case !c.IsOpen():
		return n
	case now.Before(c.probeAt):
		return 0
	}
	return 1
}

// Next is when to ask for the limit again, where that was none.
func (c *Circuit) Next() time.Time {
	if c.throttled.After(c.probeAt) {
		return c.throttled
	}
	return c.probeAt
}

// Postponement is how long a delivery is put off that may not begin now: until the next probe,
// and about as long as the destination has been away, up to 5 minutes, so that what waits for
// long is rarely written; and by chance up to a quarter of that, and a second, more.
func (c *Circuit) Postponement(now time.Time) time.Duration {
	pause := max(c.Next().Sub(now), 0)
	if c.IsOpen() {
		pause = max(pause, min(now.Sub(c.OpenSince()), maxPostponed))
	}
	return pause + time.Duration(c.chance()*float64(pause/4+time.Second))
}

// Begin takes note that a delivery, or a batch, begins. While the breaker is open it is
// a probe.
func (c *Circuit) Begin() {
	if c.IsOpen() {
		c.breaker.HalfOpen()
	}
}

// Throttle lets nothing start before a time, if that is later than what the circuit
// waits for. It returns true where the circuit did not wait.
func (c *Circuit) Throttle(until, now time.Time, cause error) (began bool) {
	began = !now.Before(c.throttled)
	if until.After(c.throttled) {
		c.throttled, c.asked = until, cause
	}
	return began
}

// Delivered takes note that the destination took a delivery. It returns true where that
// closed the breaker.
func (c *Circuit) Delivered() (closed bool) {
	if c.stray() {
		return false
	}
	c.refused = c.refused[:0]
	if !c.IsOpen() {
		c.breaker.RecordSuccess()
		return false
	}
	c.recovered++
	c.close()
	return true
}

// Refusal says what a refusal for good means for its delivery.
type Refusal int

const (
	// RefusalFinal: the delivery is refused for what it is.
	RefusalFinal Refusal = iota
	// RefusalProbe: so are all others, and an attempt is spent.
	RefusalProbe
	// RefusalStray: the delivery was in flight when the breaker opened. No attempt is
	// spent.
	RefusalStray
)

// Refused takes note that the destination refused a delivery of a key for good. It may
// open the breaker, or close it where the destination did not answer before.
func (c *Circuit) Refused(now time.Time, key string, err error) Refusal {
	if c.stray() {
		return RefusalStray
	}
	if len(c.refused) < refusals && !slices.Contains(c.refused, key) {
		c.refused = append(c.refused, key)
	}
	if len(c.refused) < refusals || c.config.Off {
		if c.IsOpen() {
			c.close()
		} else {
			c.breaker.RecordSuccess()
		}
		return RefusalFinal
	}
	refusal := RefusalFinal // of the one that opens it
	if c.IsOpen() {
		refusal = RefusalProbe
	}
	c.breaker.Open()
	c.failing = true
	c.postpone(now, err)
	return refusal
}

// Recovered is how often a delivery that got through has closed the breaker.
func (c *Circuit) Recovered() int { return c.recovered }

// Answered takes note that the destination was reached, whatever it said. It returns
// true where that closed the breaker, which had opened because the destination was
// not reached.
func (c *Circuit) Answered() (closed bool) {
	if !c.Unreachable() || c.stray() {
		return false
	}
	c.close()
	return true
}

// Unreachable says whether the breaker is open because the destination could not be
// reached.
func (c *Circuit) Unreachable() bool { return c.IsOpen() && !c.failing }

// Unavailable takes note that the destination could not be reached, which opens the
// breaker. It returns true where the breaker was closed.
func (c *Circuit) Unavailable(now time.Time, err error) (opened bool) {
	if c.stray() {
		return false
	}
	c.breaker.Open()
	return c.postpone(now, err)
}

// Failed takes note that a delivery of a key failed for the moment. It returns whether
// that spends an attempt of the delivery, and whether it opened the breaker.
func (c *Circuit) Failed(now time.Time, key string, err error) (spent, opened bool) {
	switch {
	case c.failing && c.stray():
		return false, false
	case c.failing:
		c.breaker.RecordFailure()
		return false, c.postpone(now, err)
	case c.stray() || c.config.Off || slices.Contains(c.failed, key):
		return true, false
	}
	if len(c.failed) == c.config.Among {
		c.failed = slices.Delete(c.failed, 0, 1)
	}
	c.failed = append(c.failed, key)
	c.breaker.RecordFailure()
	if !c.breaker.IsOpen() {
		return true, false
	}
	c.failing = true
	return true, c.postpone(now, err)
}

// stray says whether an outcome is of a delivery that was in flight when the breaker
// opened.
func (c *Circuit) stray() bool { return c.breaker.IsOpen() }

// postpone puts the next probe off, and returns true where the breaker had been closed.
func (c *Circuit) postpone(now time.Time, err error) (opened bool) {
	opened = !c.IsOpen()
	if opened {
		c.since = now
	}
	c.cause, c.probeAt = err, now.Add(vary(c.pace.NextBackOff(), probeJitter, c.chance()))
	return opened
}

func (c *Circuit) close() {
	c.breaker.Close()
	c.pace.Reset()
	c.since, c.probeAt, c.cause, c.failing, c.failed = time.Time{}, time.Time{}, nil, false, nil
}
