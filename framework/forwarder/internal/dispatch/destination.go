package dispatch

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// If a sink names the destination of each delivery (sinks.Addresser), a destination that is
// down, throttled or failing delays only its own deliveries. They are parked without spending
// an attempt, so that they take neither slots nor memory. When one of them becomes due, or a
// new one is read, it is the probe.

const (
	// maxTroubled is the maximum number of destinations with their own breaker. Deliveries to
	// further ones fail like transient errors.
	maxTroubled = 10_000
	// maxPostponements bounds how many deliveries are postponed in a row while others wait
	// for the lock.
	maxPostponements = 256
	// shownDestinations is how many destinations State names.
	shownDestinations = 10
)

// destination is a destination with a problem.
type destination struct {
	circuit  *policy.Circuit
	inFlight int // probes in flight
}

// troubled returns the state of a destination, and creates it at its first problem; nil if
// there are too many.
func (d *Dispatcher) troubled(name string) *destination {
	known := d.destinations[name]
	if known == nil && len(d.destinations) < maxTroubled {
		known = &destination{circuit: policy.NewCircuit(d.settings.Breaker)}
		d.destinations[name] = known
	}
	return known
}

// parkIfDown parks an item whose destination must wait; false if it may go.
func (d *Dispatcher) parkIfDown(it *item, now time.Time) bool {
	known := d.destinations[it.destination]
	if it.destination == "" || known == nil {
		return false
	}
	limit := known.circuit.Limit(policy.NoLimit, now)
	if limit > known.inFlight {
		return false
	}
	d.queue.Done(it)
	d.parkForDestination(it, known.why(), now)
	return true
}

// beginProbe makes an item that begins a probe if the breaker of its destination is open. It returns whether it is one.
func (d *Dispatcher) beginProbe(it *item) bool {
	if known := d.destinations[it.destination]; known != nil && known.circuit.IsOpen() {
		known.circuit.Begin()
		known.inFlight++
		it.probe = true
	}
	return it.probe
}

// reached records that an item was delivered to its destination.
func (d *Dispatcher) reached(it *item) {
	known := d.destinations[it.destination]
	if it.destination == "" || known == nil {
		return
	}
	if known.circuit.IsOpen() {
		d.destinationIsBack(it.destination)
	}
	delete(d.destinations, it.destination)
}

// judgeByDestination judges a failure that is about the item's destination. It returns false if the
// failure is not.
func (d *Dispatcher) judgeByDestination(f *failure) bool {
	if f.destination == "" || errors.Is(f.err, caller.ErrOpen) || f.class == sinks.ClassCancelled || f.class == sinks.ClassUnknown {
		return false
	}
	known := d.troubled(f.destination)
	switch {
	case known == nil && f.class == sinks.ClassPermanent:
		d.dead(f)
		return true
	case known == nil:
		d.retry(f)
		return true
	}
	wasOpen := known.circuit.IsOpen()
	end := d.parkWithoutAttempt
	switch f.class {
	case sinks.ClassPermanent:
		switch known.circuit.Refused(f.now, f.err) {
		case policy.RefusalFinal:
			end = d.dead
		case policy.RefusalProbe:
			end = d.retry
		}
	case sinks.ClassThrottled:
		if known.circuit.Throttle(f.throttledUntil(), f.now, f.err) {
			d.log.WarnContext(f.call.logged(), "destination is throttled, its deliveries wait", "destination", f.destination, "error", f.err)
		}
	case sinks.ClassUnavailable:
		known.circuit.Unavailable(f.now, f.err)
	default:
		if spent, _ := known.circuit.Failed(f.now, keyOrID(f.item), f.err); spent {
			end = d.retry
		}
	}
	switch isOpen := known.circuit.IsOpen(); {
	case isOpen && !wasOpen:
		d.log.ErrorContext(f.call.logged(), "destination is unavailable, its deliveries wait", "destination", f.destination, "error", f.err)
		d.observeDestination(f.destination, f.err)
	case wasOpen && !isOpen:
		d.destinationIsBack(f.destination)
	}
	end(f)
	return true
}

// parkWithoutAttempt parks an item without spending the attempt.
func (d *Dispatcher) parkWithoutAttempt(f *failure) {
	f.Attempt--
	d.parkForDestination(f.item, f.err, f.now)
}

// parkForDestination parks an item until its destination is tried again.
func (d *Dispatcher) parkForDestination(it *item, why error, now time.Time) {
	d.pending--
	it.lane.parkRetrying(it, why, now.Add(d.destinations[it.destination].circuit.Postponement(now)))
}

func (d *Dispatcher) destinationIsBack(name string) {
	d.log.Info("destination is available again", "destination", name)
	d.observeDestination(name, nil)
}

// probed records that a probe of a destination has ended.
func (d *Dispatcher) probed(it *item) {
	if !it.probe {
		return
	}
	it.probe = false
	if known := d.destinations[it.destination]; known != nil && known.inFlight > 0 {
		known.inFlight--
	}
}

var errThrottled = errors.New("its destination has asked to wait")

// why returns the error because of which deliveries wait.
func (known *destination) why() error {
	if cause := known.circuit.Cause(); cause != nil {
		return cause
	}
	return errThrottled
}

// states returns the destinations that delay deliveries, the longest first, and their number.
func (d *Dispatcher) states(now time.Time) (states []store.DestinationState, all int) {
	for name, known := range d.destinations {
		s := store.DestinationState{Destination: name}
		if known.circuit.IsOpen() {
			s.OpenSince = known.circuit.OpenSince().UTC()
		}
		if until := known.circuit.ThrottledUntil(); until.After(now) {
			s.ThrottledUntil = until.UTC()
		}
		if !s.OpenSince.IsZero() || !s.ThrottledUntil.IsZero() {
			states = append(states, s)
		}
	}
	slices.SortFunc(states, func(a, b store.DestinationState) int {
		return cmp.Or(a.OpenSince.Compare(b.OpenSince), cmp.Compare(a.Destination, b.Destination))
	})
	all = len(states)
	states = states[:min(all, shownDestinations)]
	for i := range states {
		circuit := d.destinations[states[i].Destination].circuit
		cause := circuit.Cause()
		if cause == nil {
			cause = circuit.ThrottledBy()
		}
		if cause != nil {
			states[i].Cause = store.CutText(sinks.Brief(cause), maxErrorText/shownDestinations)
		}
	}
	return states, all
}
