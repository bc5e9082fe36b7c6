package policy

import (
	"math"
	"time"

	"github.com/waybill-go/waybill/framework/settings"
)

// Governor applies an Adaptive: it decides how many calls may be in flight to a destination, and
// learns from each call that ends. It gets all times from the caller. It is not safe for
// concurrent use.
//
// Calls are counted in windows. A window counts if the limit was reached in it. At its end
//
//	limit = limit × tolerance × base / latency
//
// as in the gradient controller of Envoy's adaptive concurrency filter and in Netflix'
// Gradient2. latency is the mean of the window, and base that of a window with half the limit.
// While twice as many calls in flight take no longer, the limit grows; it falls if calls
// only wait for each other. Both are geometric means: a few very slow calls count little, but
// if all calls take twice as long, so does the mean. base is measured again after baseEvery
// windows, and when the limit has fallen to the one at which it was measured.
//
// A refused call lowers the limit at once: by a part, and by one for each further refused call
// of its round, to half at most. Then few calls begin, and one more for each call that is
// answered, as in TCP's slow start (RFC 5681). The limit stays there until the refusals are
// paid for: by growCalls calls for each, for at most as many refusals as the limit, and by
// growPauses times the time that they cost. Then it grows by one, two, four and so on for each
// window.
type Governor struct {
	config   settings.Adaptive
	limit    float64
	ramp     float64 // bounds the limit after a refusal
	inFlight int

	since   time.Time // calls that began before belong to no window
	calls   int       // in the window
	logs    float64   // sum of the logarithms of their seconds
	reached bool      // the limit was reached in the window

	base       float64 // logarithm of the base latency in seconds
	measured   bool    // base is known
	measuredAt int     // limit when base was measured
	windows    int     // until base is measured again
	halved     bool    // base is being measured

	cut   time.Time // of the last refusal that began a round; calls from before belong to the round
	floor float64   // lower bound of the limit in that round
	top   float64   // limit after that round
	debt  int       // calls that must be answered before the limit may exceed top
	hold  time.Time // the limit does not exceed top before this time
	step  float64   // by how much the limit may grow at once
}

// The values that give the best results with the servers in governor_test.go.
const (
	tolerance    = 1.3 // of latency, before the limit falls
	mostFall     = 0.5 // lowest factor of the limit in a window
	mostGrowth   = 1.5
	leastWindow  = 64 // calls
	windowRounds = 2  // calls of a window for each call in flight; twice that for base
	baseEvery    = 30 // windows

	cutShare   = 0.97
	rampShare  = 4 // after a refusal, limit/rampShare calls may begin
	growCalls  = 100
	growPauses = 32
	maxHold    = 10 * time.Minute

	leastLatency = time.Microsecond // shorter ones cannot be measured
)

var (
	logSimilar = math.Log(1.5) // latencies that may differ by chance only
	logSlow    = math.Log(3)   // a latency that allows no further calls
)

// NewGovernor returns a governor that begins at the default threshold, within the bounds of the
// settings, which must have their defaults.
func NewGovernor(config settings.Adaptive) *Governor {
	g := &Governor{limit: settings.DefaultThreshold, ramp: math.Inf(1), step: math.Inf(1)}
	g.Adjust(config)
	return g
}

// Adjust replaces the settings, which must have their defaults. What was learned is kept.
func (g *Governor) Adjust(config settings.Adaptive) {
	g.config = config
	g.limit = g.bound(g.limit)
}

// Limit returns how many calls may be in flight.
func (g *Governor) Limit() int {
	limit := min(g.limit, g.ramp)
	if g.halved {
		limit /= 2
	}
	return int(g.bound(limit))
}

// InFlight returns how many calls are in flight.
func (g *Governor) InFlight() int { return g.inFlight }

// Begin records that a call begins.
func (g *Governor) Begin() {
	g.inFlight++
	g.reached = g.reached || g.inFlight >= g.Limit()
}

// Drop records the end of a call from which nothing can be learned.
func (g *Governor) Drop() { g.inFlight-- }

// Answered records that the destination has answered a call, or that it timed out.
func (g *Governor) Answered(began, now time.Time) {
	early := g.inFlight > g.Limit() // began before the limit was lowered
	g.inFlight--
	g.debt = max(0, g.debt-1)
	if g.ramp < g.limit {
		g.ramp++
		early = true
	}
	if early {
		g.open(now)
	}
	if began.Before(g.since) {
		return
	}
	g.calls++
	g.logs += math.Log(max(now.Sub(began), leastLatency).Seconds())
	if g.enough() {
		g.close(now)
	}
}

// Refused records that the destination has refused a call for now and must be left alone for a
// pause.
func (g *Governor) Refused(began, now time.Time, pause time.Duration) {
	limit := float64(g.Limit())
	g.inFlight--
	if began.Before(g.cut) {
		limit = max(g.limit-1, g.floor)
	} else {
		g.cut, g.floor, g.step, g.halved = now, limit/2, 1, false
		limit = min(limit-1, limit*cutShare)
	}
	g.limit = g.bound(limit)
	g.top, g.ramp = g.limit, g.limit/rampShare
	g.debt = min(g.debt+growCalls, growCalls*int(g.limit))
	if g.measured { // growing again takes some calls as well
		pause += time.Duration(2 * math.Exp(g.base) * float64(time.Second))
	}
	if hold := now.Add(min(growPauses*pause, maxHold)); hold.After(g.hold) {
		g.hold = hold
	}
	g.open(now)
}

// open begins a window.
func (g *Governor) open(now time.Time) {
	g.since, g.calls, g.logs, g.reached = now, 0, 0, g.inFlight >= g.Limit()
}

// enough reports whether a window has enough calls.
func (g *Governor) enough() bool {
	rounds := windowRounds
	if g.halved {
		rounds *= 2
	} else if g.measured && g.calls >= leastWindow/4 && g.logs/float64(g.calls) > g.base+logSlow {
		return true
	}
	return g.calls >= max(leastWindow, rounds*g.Limit())
}

// close ends a window, and moves the limit.
func (g *Governor) close(now time.Time) {
	limit, latency := g.Limit(), g.logs/float64(g.calls)
	slower := latency - g.base
	switch {
	case !g.reached:
		// the limit was not reached, so nothing is known about a higher one
	case g.halved:
		g.measure(limit, latency)
	case limit == g.config.Min: // it cannot be halved
		g.measure(limit, latency)
		g.move(tolerance, now)
	case g.windows == 0, limit <= g.measuredAt && slower > logSimilar:
		g.halved = true
	case limit <= g.measuredAt:
		g.base += slower / 3
		g.move(tolerance, now)
	default:
		g.windows--
		g.move(tolerance*math.Exp(-slower), now)
	}
	g.open(now)
}

// measure sets the base latency from a window. If it differs much, it is measured again soon,
// with the limit that results from it.
func (g *Governor) measure(limit int, latency float64) {
	g.windows = 1
	if slower := latency - g.base; g.measured && math.Abs(slower) < logSimilar {
		latency, g.windows = g.base+slower/3, baseEvery
	}
	g.base, g.measured, g.measuredAt, g.halved = latency, true, limit, false
}

// move multiplies the limit, within its bounds.
func (g *Governor) move(factor float64, now time.Time) {
	limit := g.limit * min(max(factor, mostFall), mostGrowth)
	switch {
	case limit <= g.limit:
	case g.debt > 0 || now.Before(g.hold):
		limit = min(limit, max(g.limit, g.top))
	default:
		limit = min(limit, g.limit+g.step)
		g.step *= 2
	}
	g.limit = g.bound(limit)
}

func (g *Governor) bound(limit float64) float64 {
	return min(max(limit, float64(g.config.Min)), float64(g.config.Max))
}
