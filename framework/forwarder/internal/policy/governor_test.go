package policy_test

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/settings"
)

// server is a model of a destination with a limited number of simultaneous calls.
type server struct {
	capacity int
	// takes returns the duration of a call.
	takes func() time.Duration
	// pause, if set, is what the server requests when it refuses a call beyond its capacity. Otherwise the
	// call waits, and each waiting call slows down all calls by a share.
	pause time.Duration
	slows float64
}

// call is a call in flight.
type call struct {
	began, ends time.Time
	refused     bool
}

type calls []*call

func (c calls) Len() int           { return len(c) }
func (c calls) Less(i, j int) bool { return c[i].ends.Before(c[j].ends) }
func (c calls) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *calls) Push(x any)        { *c = append(*c, x.(*call)) }
func (c *calls) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// world is a backlog that is delivered to a server, in simulated time.
type world struct {
	server
	governor *policy.Governor
	fixed    int // fixed limit instead of a governor
	now      time.Time
	paused   time.Time
	under    calls   // calls that the server handles or refuses
	waiting  []*call // calls that wait in the server
	inFlight int
	working  int
}

// outcome is the result of a phase.
type outcome struct {
	delivered, refused int
	least, most        int // lowest and highest limit in its second half
	latency            time.Duration
}

func (w *world) limit() int {
	if w.governor == nil {
		return w.fixed
	}
	return w.governor.Limit()
}

// run simulates a duration.
func (w *world) run(lasts time.Duration) (o outcome) {
	end := w.now.Add(lasts)
	o.least = math.MaxInt
	var waited time.Duration
	for {
		for w.inFlight < w.limit() && !w.now.Before(w.paused) {
			w.begin()
		}
		if left := end.Sub(w.now); left < lasts/2 {
			o.least, o.most = min(o.least, w.limit()), max(o.most, w.limit())
		}
		next := end
		if len(w.under) > 0 && w.under[0].ends.Before(next) {
			next = w.under[0].ends
		}
		if w.now.Before(w.paused) && w.paused.Before(next) {
			next = w.paused
		}
		w.now = next
		if !next.Before(end) {
			o.latency = waited / time.Duration(max(1, o.delivered))
			return o
		}
		if len(w.under) == 0 || w.under[0].ends.After(w.now) {
			continue
		}
		c := heap.Pop(&w.under).(*call)
		w.inFlight--
		if !c.refused {
			w.working--
		}
		switch {
		case c.refused:
			o.refused++
			if until := w.now.Add(w.pause); until.After(w.paused) {
				w.paused = until
			}
			if w.governor != nil {
				w.governor.Refused(c.began, w.now, w.pause)
			}
		default:
			o.delivered++
			waited += w.now.Sub(c.began)
			if w.governor != nil {
				w.governor.Answered(c.began, w.now)
			}
		}
		w.start()
	}
}

func (w *world) begin() {
	c := &call{began: w.now}
	w.inFlight++
	if w.governor != nil {
		w.governor.Begin()
	}
	if w.pause > 0 && w.working >= w.capacity {
		c.refused, c.ends = true, w.now.Add(2*time.Millisecond)
		heap.Push(&w.under, c)
		return
	}
	w.waiting = append(w.waiting, c)
	w.start()
}

// start makes the server begin waiting calls, up to its capacity.
func (w *world) start() {
	for len(w.waiting) > 0 && w.working < w.capacity {
		c := w.waiting[0]
		w.waiting = w.waiting[1:]
		slower := 1 + w.slows*float64(max(0, w.inFlight-w.capacity))/float64(w.capacity)
		w.working++
		c.ends = w.now.Add(time.Duration(float64(w.takes()) * slower))
		heap.Push(&w.under, c)
	}
}

// phases are consecutive capacities.
func phases(s server, governor *policy.Governor, fixed int, lasts time.Duration, capacities ...int) []outcome {
	w := &world{server: s, governor: governor, fixed: fixed, now: begun}
	outcomes := make([]outcome, len(capacities))
	for i, n := range capacities {
		w.capacity = n
		outcomes[i] = w.run(lasts)
	}
	return outcomes
}

func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// random returns a duration with an exponential distribution and the mean d.
func random(d time.Duration) func() time.Duration {
	r := rand.New(rand.NewPCG(1, 1))
	return func() time.Duration { return time.Duration(r.ExpFloat64() * float64(d)) }
}

// mixed returns a short duration for most calls, and a long one for some.
func mixed(d time.Duration) func() time.Duration {
	r := rand.New(rand.NewPCG(1, 1))
	return func() time.Duration {
		if r.IntN(10) == 0 {
			return 5 * d
		}
		return d * 5 / 9
	}
}

// Each capacity lasts so long that the time to notice it and the slow growth after a refusal count little.
// The required share is lower for exponentially distributed durations, because a window of such calls
// says less about the server.
func TestTheLimitFollowsTheCapacity(t *testing.T) {
	t.Parallel()
	const takes = 50 * time.Millisecond
	for name, c := range map[string]struct {
		server func() server
		share  float64 // minimum, of the best fixed threshold's deliveries
	}{
		"calls wait":                            {func() server { return server{takes: always(takes)} }, 0.9},
		"mixed calls wait":                      {func() server { return server{takes: mixed(takes)} }, 0.9},
		"random calls wait":                     {func() server { return server{takes: random(takes)} }, 0.75},
		"the server gets slower":                {func() server { return server{takes: always(takes), slows: 0.25} }, 0.9},
		"the server gets slower, mixed calls":   {func() server { return server{takes: mixed(takes), slows: 0.25} }, 0.9},
		"the server refuses":                    {func() server { return server{takes: always(takes), pause: 100 * time.Millisecond} }, 0.9},
		"the server refuses mixed calls":        {func() server { return server{takes: mixed(takes), pause: 100 * time.Millisecond} }, 0.9},
		"the server refuses random calls":       {func() server { return server{takes: random(takes), pause: 100 * time.Millisecond} }, 0.75},
		"the server refuses, with a long pause": {func() server { return server{takes: always(takes), pause: time.Second} }, 0.9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lasts, capacities := 4*time.Minute, []int{4, 64, 4, 64}
			if c.server().pause == time.Second {
				lasts = 15 * time.Minute
			}
			best := make(map[int]float64) // deliveries a second
			for _, fixed := range []int{1, 2, 3, 4, 5, 6, 8, 16, 32, 48, 63, 64, 65, 72, 96, 128, 512} {
				for _, n := range []int{4, 64} {
					short := phases(c.server(), nil, fixed, 30*time.Second, n)[0]
					best[n] = max(best[n], float64(short.delivered)/30)
				}
			}
			g := policy.NewGovernor(settings.Adaptive{Min: 1, Max: 512})
			for i, o := range phases(c.server(), g, 0, lasts, capacities...) {
				share := float64(o.delivered) / lasts.Seconds() / best[capacities[i]]
				refused := float64(o.refused) / float64(o.delivered+o.refused)
				t.Logf("capacity %d: %.3f of the best, %.2f%% refused, limit %d to %d, latency %s", capacities[i], share, 100*refused,
					o.least, o.most, o.latency.Round(time.Millisecond))
				require.GreaterOrEqual(t, share, c.share, "phase %d", i)
				require.LessOrEqual(t, refused, 0.02, "phase %d", i)
			}
		})
	}
}

func TestAGovernorKeepsItsBounds(t *testing.T) {
	t.Parallel()
	g := policy.NewGovernor(settings.Adaptive{Min: 32, Max: 40})
	require.Equal(t, 32, g.Limit(), "the bound that is nearest to the default threshold")
	s := server{takes: always(50 * time.Millisecond)}
	for _, o := range phases(s, g, 0, time.Minute, 4, 1000) {
		require.GreaterOrEqual(t, o.least, 32)
		require.LessOrEqual(t, o.most, 40)
	}
	g.Adjust(settings.Adaptive{Min: 1, Max: 8})
	require.LessOrEqual(t, g.Limit(), 8, "at once")
	g.Adjust(settings.Adaptive{Min: 100, Max: 200})
	require.Equal(t, 100, g.Limit())
}

func TestALimitThatIsNotReachedStays(t *testing.T) {
	t.Parallel()
	g, now := policy.NewGovernor(settings.Adaptive{Min: 1, Max: 512}), begun
	for range 10_000 {
		for range 3 {
			g.Begin()
		}
		began := now
		now = now.Add(time.Millisecond)
		for range 3 {
			g.Answered(began, now)
		}
	}
	require.Equal(t, settings.DefaultThreshold, g.Limit())
	require.Zero(t, g.InFlight())
}

func TestALimitRecoversAfterAnOutage(t *testing.T) {
	t.Parallel()
	s := server{takes: always(50 * time.Millisecond), pause: 100 * time.Millisecond}
	g := policy.NewGovernor(settings.Adaptive{Min: 1, Max: 512})
	outcomes := phases(s, g, 0, time.Minute, 64, 0, 64)
	require.LessOrEqual(t, outcomes[1].delivered, 64, "the deliveries in flight")
	require.Equal(t, 1, outcomes[1].most)
	require.Greater(t, outcomes[2].least, outcomes[0].least/2)
	require.Greater(t, outcomes[2].delivered, outcomes[0].delivered/2)
}
