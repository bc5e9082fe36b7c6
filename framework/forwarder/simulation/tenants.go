package simulation

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/settings"
)

// Isolation is what a sink keeps separately for each destination.
type Isolation string

// The isolations.
const (
	// IsolateNothing shares slots and one breaker among all destinations: the sink does not
	// name them.
	IsolateNothing Isolation = "nothing"
	// IsolateSlots gives each destination its share of the slots, but no breaker.
	IsolateSlots Isolation = "slots"
	// IsolateAll is how sinks with many destinations work: slots and a breaker for each.
	IsolateAll Isolation = "slots and breakers"
)

// Trouble is how a destination fails.
type Trouble string

// The troubles.
const (
	Hangs   Trouble = "hangs"   // a call ends at the timeout
	Refuses Trouble = "refuses" // a call fails at once: nothing listens
)

// Tenants is a fleet that delivers to many destinations, some of which are dead. Notifications
// come at random (a Poisson process), each for any of the tenants and with its own key. The
// processes share nothing but the tenants.
type Tenants struct {
	Processes int           // default 1
	Slots     int           // of each process; default 256
	Tenants   int           // up to 100,000
	Rate      float64       // notifications in a second, of all
	Latency   time.Duration // of a destination that lives; default 20 ms
	Dead      int           // tenants
	Trouble   Trouble       // default Hangs
	Timeout   time.Duration // of a call; default 10 s
	Refusal   time.Duration // what a refused call takes; default 1 ms
	Isolation Isolation     // default IsolateAll
	// Retry says when a failed delivery is tried again; unset fields have the engine's defaults.
	Retry Retry
	// Window is how many deliveries a process has in memory at most; default: as one lane.
	Window int
	// WarmUp is how long, since the dead ones died, nothing is counted; default 20 s. Time is how
	// long is counted after that; default 20 s.
	WarmUp, Time time.Duration
	Seed         uint64
}

// Retry is forwarder.Retry, with its fields MaxAttempts, Initial, Multiplier, Max, Jitter, MaxAge and Types.
type Retry = settings.Retry

// Effect is what the tenants experienced while it was counted.
type Effect struct {
	// Offered is how many notifications per second came for living tenants, and Delivered how
	// many of these were delivered.
	Offered, Delivered float64
	// Half and NinetyNine are the times within which half, and 99 of 100, of their deliveries
	// were made, since the notification came.
	Half, NinetyNine time.Duration
	// Busy is how many slots were in use, on average over the time, and Wasted how many of these
	// by calls of dead tenants, both over all processes.
	Busy, Wasted float64
	// Tries is how many calls of dead tenants were made per second, and Parked how many deliveries
	// were parked, each of which writes a row and later deletes it.
	Tries, Parked float64
	// Waiting is how many notifications for living tenants were not delivered at the end.
	Waiting int
	// Course is how many were delivered to them in each second since the dead ones died, including
	// WarmUp.
	Course []int
}

// Recovered returns since which second the living tenants got at least the given share of what
// they were offered, in each second to the end; false if they did not.
func (e Effect) Recovered(share float64) (since time.Duration, ok bool) {
	n := len(e.Course)
	for n > 0 && float64(e.Course[n-1]) >= share*e.Offered {
		n--
	}
	return time.Duration(n) * time.Second, n < len(e.Course)
}

// WithDefaults returns the configuration with the defaults of unset fields.
func (t Tenants) WithDefaults() Tenants {
	t.Processes, t.Slots, t.Window = cmp.Or(t.Processes, 1), cmp.Or(t.Slots, 256), cmp.Or(t.Window, dispatch.WindowRows)
	t.Latency, t.Timeout = cmp.Or(t.Latency, 20*time.Millisecond), cmp.Or(t.Timeout, 10*time.Second)
	t.Refusal = cmp.Or(t.Refusal, time.Millisecond)
	t.Trouble, t.Isolation = cmp.Or(t.Trouble, Hangs), cmp.Or(t.Isolation, IsolateAll)
	t.Retry = t.Retry.WithDefaults()
	t.WarmUp, t.Time = cmp.Or(t.WarmUp, 20*time.Second), cmp.Or(t.Time, 20*time.Second)
	return t
}

const mostTenants = 100_000

func (t Tenants) validate() error {
	switch {
	case t.Processes < 1 || t.Slots < 1 || t.Window < t.Slots:
		return fmt.Errorf("%d processes of %d slots, a window of %d: use at least 1, and a window of the slots or more", t.Processes, t.Slots, t.Window)
	case t.Tenants < 1 || t.Tenants > mostTenants || t.Dead < 0 || t.Dead > t.Tenants:
		return fmt.Errorf("%d tenants, %d dead: use 1 to %d, and no more dead ones than tenants", t.Tenants, t.Dead, mostTenants)
	case t.Rate <= 0:
		return fmt.Errorf("a rate of %g: use more than 0", t.Rate)
	case t.Isolation != IsolateNothing && t.Isolation != IsolateSlots && t.Isolation != IsolateAll:
		return fmt.Errorf("there is no isolation %q", t.Isolation)
	case t.Trouble != Hangs && t.Trouble != Refuses:
		return fmt.Errorf("there is no trouble %q", t.Trouble)
	case min(t.Latency, t.Timeout, t.Refusal, t.WarmUp, t.Time) <= 0:
		return errors.New("a time is not above 0")
	}
	return nil
}

// Run simulates the fleet, on all processors.
func (t Tenants) Run() (Effect, error) {
	t = t.WithDefaults()
	if err := t.validate(); err != nil {
		return Effect{}, err
	}
	names := make([]string, t.Tenants)
	for number := range names {
		names[number] = strconv.Itoa(number)
	}
	processes := make([]*process, t.Processes)
	var work errgroup.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	for number := range processes {
		work.Go(func() error {
			processes[number] = newProcess(t, number, names)
			processes[number].run()
			processes[number].forget()
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return Effect{}, err
	}
	return t.sum(processes), nil
}

func (t Tenants) sum(processes []*process) (e Effect) {
	var times histogram
	e.Course = make([]int, len(processes[0].course))
	seconds := t.Time.Seconds()
	for _, p := range processes {
		times.add(&p.times)
		e.Offered += float64(p.offered) / seconds
		e.Delivered += float64(p.times.all) / seconds
		e.Busy += p.busyTime.Seconds() / seconds
		e.Wasted += p.wastedTime.Seconds() / seconds
		e.Tries += float64(p.tries) / seconds
		e.Parked += float64(p.parked) / seconds
		e.Waiting += p.waiting
		for second, n := range p.course {
			e.Course[second] += n
		}
	}
	e.Half, e.NinetyNine = times.quantile(0.5), times.quantile(0.99)
	return e
}
