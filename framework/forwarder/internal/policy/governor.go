package policy

import (
	"math"
	"time"
)

// Governor applies an Adaptive: it says how many calls of a destination may be in flight,
// and learns from each that ends. It knows no clock but the times that it is given. It is
// for one goroutine at a time.
//
// Calls are counted in windows, which count where the limit was used up. At the end of one
//
//	limit = limit × tolerance × base / latency
//
// as in the gradient controller of Envoy's adaptive concurrency filter and in Netflix'
// Gradient2. latency is the mean of the window, and base that of a window with half the
// limit: while twice as much in flight takes no longer the limit grows, and it falls where
// calls only wait for each other. Both are geometric means: a few calls that take very long
// count for little, and all that take twice as long for exactly that. base is measured anew
// after baseEvery windows, and where the limit has fallen to that of its measuring.
//
// A call that is refused lowers the limit at once: by a part, and by one for each further
// call of its round, to half at most. Then little begins, and one more with each call that
// is answered, as in TCP's slow start (RFC 5681). The limit stays where it is until the
// refusal is paid for: by growCalls calls, for no more refusals than the limit, and by
// growPauses times what it has cost in time.
// Then it grows by one, two, four and so on in a window.
type Governor struct {
	config   Adaptive
	limit    float64
	ramp     float64 // bounds the limit after a refusal
	inFlight int

	since   time.Time // calls that began before are of no window
	calls   int       // of the window
	logs    float64   // sum of the logarithms of their seconds
	reached bool      // the limit was used up in it

	base       float64 // logarithm of the base latency in seconds
	measured   bool    // it is known
	measuredAt int     // the limit then
	windows    int     // until it is measured again
	halved     bool    // it is being measured

	cut   time.Time // of the last refusal that began a round: calls from before belong to it
	floor float64   // what that round leaves of the limit at least
	top   float64   // what it has left
	debt  int       // calls to be answered before the limit passes top
	hold  time.Time // nor does it before then
	step  float64   // by which it grows at most
}

// The numbers are those with which the servers of governor_test.go are used best.
const (
	tolerance    = 1.3 // of latency, before the limit falls
	mostFall     = 0.5 // of the limit, in a window
	mostGrowth   = 1.5
	leastWindow  = 64 // calls
	windowRounds = 2  // calls of a window for each one in flight; twice that for base
	baseEvery    = 30 // windows

	cutShare   = 0.97
	rampShare  = 4 // what begins after a refusal is the limit divided by that
	growCalls  = 100
	growPauses = 32
	maxHold    = 10 * time.Minute

	leastLatency = time.Microsecond // that clocks can tell from none
)

var (
	logSimilar = math.Log(1.5) // latencies that may be the same but for chance
	logSlow    = math.Log(3)   // one that is worth no further calls
)

// NewGovernor returns a governor that begins at the default threshold, or as near to it as
// the settings allow. They have their defaults.
func NewGovernor(config Adaptive) *Governor {
	g := &Governor{limit: DefaultThreshold, ramp: math.Inf(1), step: math.Inf(1)}
	g.Adjust(config)
	return g
}

// Adjust takes over other settings, with their defaults. What was learned is kept.
func (g *Governor) Adjust(config Adaptive) {
	g.config = config
	g.limit = g.bound(g.limit)
}

// Limit is how many calls may be in flight.
func (g *Governor) Limit() int {
	limit := min(g.limit, g.ramp)
	if g.halved {
		limit /= 2
	}
	return int(g.bound(limit))
}

// InFlight is how many calls are.
func (g *Governor) InFlight() int { return g.inFlight }

// Begin takes note that a call begins.
func (g *Governor) Begin() {
	g.inFlight++
	g.reached = g.reached || g.inFlight >= g.Limit()
}

// Drop takes note that a call has ended that says nothing of what the destination can take.
func (g *Governor) Drop() { g.inFlight-- }

// Answered takes note that the destination has answered a call, or let its time run out.
func (g *Governor) Answered(began, now time.Time) {
	early := g.inFlight > g.Limit() // of a limit that was lowered
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

// Refused takes note that the destination has not taken a call for now, and is left alone
// for a pause.
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
	if g.measured { // beginning again takes some calls as well
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

// enough says whether a window can be judged.
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
		// what is not used up says nothing about more
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

// measure takes over the latency of a window as base. One that is quite another is measured
// again soon, with the limit that follows from it.
func (g *Governor) measure(limit int, latency float64) {
	g.windows = 1
	if slower := latency - g.base; g.measured && math.Abs(slower) < logSimilar {
		latency, g.windows = g.base+slower/3, baseEvery
	}
	g.base, g.measured, g.measuredAt, g.halved = latency, true, limit, false
}

// move multiplies the limit, as far as it may move.
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
