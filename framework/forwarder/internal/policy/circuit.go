package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/waybill-go/waybill/framework/settings"
)

// Circuit applies a Breaker, and throttling requested by a destination: it holds back all
// deliveries while the destination fails or asks to wait. It is not safe for concurrent use.
//
// The breaker is closed while deliveries are made, open while none starts, and half-open while
// one probe is in flight, whose result closes it or opens it for longer. Results of deliveries
// that were in flight when the breaker opened are ignored.
type Circuit struct {
	config  settings.Breaker
	breaker circuitbreaker.CircuitBreaker[any]
	pace    *backoff.ExponentialBackOff
	chance  func() float64 // random number for the pauses, from 0 up to 1

	throttled      time.Time // nothing starts before
	asked          error     // with which the destination last asked to wait
	since          time.Time // when the breaker opened; zero while it is closed
	probeAt        time.Time // no probe starts before
	cause          error     // why it opened
	failing        bool      // it opened because deliveries failed, not because the destination is unavailable
	failed         []string  // keys of the last failures that counted, oldest first
	fruitlessSince time.Time // the first failure since the last success; zero: none
	refused        int       // deliveries refused permanently since the last success
	recovered      int       // how often a successful delivery has closed the breaker
}

// The breaker opens if this many of the last attempts failed temporarily. Of several failures of one
// key only the first counts. Some failures are normal; nearly all of them mean that the destination
// answers nothing. With fewer attempts a short run of bad notifications would stop the sink.
const (
	failures = 18
	among    = 20
)

// maxPostponed bounds how long a delivery is postponed because its destination is unavailable.
const maxPostponed = 5 * time.Minute

// refusals is the number of deliveries refused permanently in a row, whatever their keys, after which the breaker
// opens: so many are more likely a problem of the sink than of the notifications.
const refusals = 10

// mostFruitless is how long no delivery may succeed while deliveries of at least two keys fail. Then the breaker opens: a
// sink with few notifications would not reach its share of failures during an outage.
const mostFruitless = 2 * time.Minute

// NewCircuit returns a circuit with a closed breaker. The settings must have their defaults.
func NewCircuit(config settings.Breaker) *Circuit { return NewCircuitBy(config, rand.Float64) }

// NewCircuitBy is NewCircuit with the caller's random numbers, from 0 up to but not including 1.
func NewCircuitBy(config settings.Breaker, chance func() float64) *Circuit {
	c := &Circuit{chance: chance}
	c.Adjust(config)
	return c
}

// Adjust replaces the settings, which must have their defaults, and closes the breaker.
// Throttling goes on.
func (c *Circuit) Adjust(config settings.Breaker) {
	*c = Circuit{
		config: config,
		pace:   &backoff.ExponentialBackOff{InitialInterval: settings.FirstPause, Multiplier: 2, MaxInterval: config.MaxPause},
		chance: c.chance,
		breaker: circuitbreaker.NewBuilder[any]().
			WithFailureThresholdRatio(failures, among).
			WithSuccessThreshold(1).
			WithDelay(0). // probeAt decides when a probe may start
			Build(),
		throttled: c.throttled,
		asked:     c.asked,
		recovered: c.recovered,
	}
}

// IsOpen reports whether the breaker is open: only probes start.
func (c *Circuit) IsOpen() bool { return !c.since.IsZero() }

// OpenSince returns when the breaker opened; zero while it is closed.
func (c *Circuit) OpenSince() time.Time { return c.since }

// Cause returns the error for which the breaker opened; nil while it is closed.
func (c *Circuit) Cause() error { return c.cause }

// ThrottledUntil returns the time before which nothing starts because the destination asked to
// wait. It may be in the past, or zero.
func (c *Circuit) ThrottledUntil() time.Time { return c.throttled }

// ThrottledBy returns the error with which the destination last asked to wait, or nil.
func (c *Circuit) ThrottledBy() error { return c.asked }

// NoLimit as a limit means that there is none.
const NoLimit = math.MaxInt

// Limit returns how many of n deliveries may be in flight at now.
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

// Next returns when to call Limit again, if it was 0.
func (c *Circuit) Next() time.Time {
	if c.throttled.After(c.probeAt) {
		return c.throttled
	}
	return c.probeAt
}

// Postponement returns how long to postpone a delivery that may not begin now: until the next
// probe plus about as long as its destination has been in trouble, up to 5 minutes, so that
// deliveries that wait for long are rarely written. It adds up to a quarter of that, and a
// second, at random. since is when the trouble began; zero: it only asks to wait.
func (c *Circuit) Postponement(since, now time.Time) time.Duration {
	pause := max(c.Next().Sub(now), 0)
	if !since.IsZero() {
		pause = max(pause, min(now.Sub(since), maxPostponed))
	}
	return pause + time.Duration(c.chance()*float64(pause/4+time.Second))
}

// Begin records that a delivery or batch begins. While the breaker is open it is a probe.
func (c *Circuit) Begin() {
	if c.IsOpen() {
		c.breaker.HalfOpen()
	}
}

// Throttle lets nothing start before a time, if that is later than an earlier one. It returns
// true if the circuit was not throttled.
func (c *Circuit) Throttle(until, now time.Time, cause error) (began bool) {
	began = !now.Before(c.throttled)
	if until.After(c.throttled) {
		c.throttled, c.asked = until, cause
	}
	return began
}

// Delivered records that a delivery succeeded. It returns true if that closed the breaker.
func (c *Circuit) Delivered() (closed bool) {
	if c.stray() {
		return false
	}
	c.refused, c.fruitlessSince = 0, time.Time{}
	if !c.IsOpen() {
		c.breaker.RecordSuccess()
		return false
	}
	c.recovered++
	c.close()
	return true
}

// Refusal is what a permanent refusal means for its delivery.
type Refusal int

const (
	// RefusalFinal: the notification is the cause, and the delivery is dead.
	RefusalFinal Refusal = iota
	// RefusalProbe: one delivery after the other is refused; the attempt is spent.
	RefusalProbe
	// RefusalStray: the delivery was in flight when the breaker opened. No attempt is spent.
	RefusalStray
)

// Refused records that the destination permanently refused a delivery. This may open the breaker,
// or close it if the destination was unavailable.
func (c *Circuit) Refused(now time.Time, err error) Refusal {
	if c.stray() {
		return RefusalStray
	}
	c.refused++
	if c.refused < refusals || c.config.Off {
		if c.IsOpen() {
			c.close()
		} else {
			c.breaker.RecordSuccess()
		}
		return RefusalFinal
	}
	refusal := RefusalFinal // also for the refusal that opens the breaker
	if c.IsOpen() {
		refusal = RefusalProbe
	}
	c.breaker.Open()
	c.failing = true
	c.delayProbe(now, err)
	return refusal
}

// Recovered returns how often a successful delivery has closed the breaker.
func (c *Circuit) Recovered() int { return c.recovered }

// Answered records that the destination answered, with any outcome. It returns true if that closed
// the breaker, which had opened because the destination was unavailable.
func (c *Circuit) Answered() (closed bool) {
	if !c.Unreachable() || c.stray() {
		return false
	}
	c.close()
	return true
}

// Unreachable reports whether the breaker is open because the destination is unavailable.
func (c *Circuit) Unreachable() bool { return c.IsOpen() && !c.failing }

// Unavailable records that the destination is unavailable, which opens the breaker. It returns true
// if the breaker was closed.
func (c *Circuit) Unavailable(now time.Time, err error) (opened bool) {
	if c.stray() {
		return false
	}
	c.breaker.Open()
	return c.delayProbe(now, err)
}

// Failed records that a delivery of a key failed temporarily. It returns whether that spends an
// attempt of the delivery, and whether it opened the breaker.
func (c *Circuit) Failed(now time.Time, key string, err error) (spent, opened bool) {
	switch {
	case c.failing && c.stray():
		return false, false
	case c.failing:
		c.breaker.RecordFailure()
		return false, c.delayProbe(now, err)
	case c.stray() || c.config.Off:
		return true, false
	}
	c.count(now, key)
	if !c.breaker.IsOpen() {
		return true, false
	}
	c.failing = true
	return true, c.delayProbe(now, err)
}

// count counts a failure of a key, which may open the breaker.
func (c *Circuit) count(now time.Time, key string) {
	if c.fruitlessSince.IsZero() {
		c.fruitlessSince = now
	}
	if !slices.Contains(c.failed, key) {
		if len(c.failed) == among {
			c.failed = slices.Delete(c.failed, 0, 1)
		}
		c.failed = append(c.failed, key)
		c.breaker.RecordFailure()
	}
	if len(c.failed) > 1 && now.Sub(c.fruitlessSince) >= mostFruitless {
		c.breaker.Open()
	}
}

// stray reports whether a result is of a delivery that was in flight when the breaker opened.
func (c *Circuit) stray() bool { return c.breaker.IsOpen() }

// delayProbe sets the time of the next probe, and returns true if the breaker was closed.
func (c *Circuit) delayProbe(now time.Time, err error) (opened bool) {
	opened = !c.IsOpen()
	if opened {
		c.since = now
	}
	c.cause, c.probeAt = err, now.Add(settings.Vary(c.pace.NextBackOff(), c.chance()))
	return opened
}

func (c *Circuit) close() {
	c.breaker.Close()
	c.pace.Reset()
	c.since, c.probeAt, c.cause = time.Time{}, time.Time{}, nil
	c.failing, c.failed, c.fruitlessSince = false, nil, time.Time{}
}
