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
//
// However many destinations are in trouble at once, the others keep slots: those that have failed
// since their last success have at most half of them together, and one that leaves calls
// unanswered gets no further ones until one of them ends, or half of the slots are free.

const (
	// maxTroubled is the maximum number of destinations with their own breaker. Deliveries to
	// further ones fail like transient errors.
	maxTroubled = 10_000
	// maxPostponements bounds how many deliveries are postponed in a row while others wait
	// for the lock.
	maxPostponements = 256
	// shownDestinations is how many destinations State names.
	shownDestinations = 10
	// patience is how long a destination may leave its calls unanswered before it gets no further ones.
	patience = time.Second
)

// destination is a destination with a problem.
type destination struct {
	circuit  *policy.Circuit
	since    time.Time // of the first failure since the last success
	inFlight int       // probes in flight
}

// troubled returns the state of a destination, and creates it at its first problem; nil if
// there are too many.
func (d *Dispatcher) troubled(name string, now time.Time) *destination {
	known := d.destinations[name]
	if known == nil && len(d.destinations) < maxTroubled {
		known = &destination{circuit: policy.NewCircuit(d.settings.Breaker), since: now}
		d.destinations[name] = known
	}
	return known
}

// parkIfDown parks an item whose destination must wait; false if it may go. slots is how many items may be in flight.
func (d *Dispatcher) parkIfDown(it *item, slots int, now time.Time) bool {
	known := d.destinations[it.destination]
	if it.destination == "" || known == nil {
		return false
	}
	why, since := known.why(), known.circuit.OpenSince()
	if limit := known.circuit.Limit(policy.NoLimit, now); limit > known.inFlight {
		if d.doubtful < max(1, slots/2) {
			return false
		}
		why, since = errCrowded, known.since
	}
	d.queue.Done(it)
	d.parkForDestination(it, store.CutText(why.Error(), maxErrorText), since, now)
	return true
}

// beginAt records that an item begins at its destination. It returns whether it is a probe, because the breaker of the
// destination is open.
func (d *Dispatcher) beginAt(it *item, now time.Time) (probe bool) {
	if known := d.destinations[it.destination]; known != nil {
		it.doubtful = true
		d.doubtful++
		if known.circuit.IsOpen() {
			known.circuit.Begin()
			known.inFlight++
			it.probe = true
		}
	}
	if it.destination == "" || !d.sharesByDestination() {
		return it.probe
	}
	it.contact = d.contacts[it.destination]
	if it.contact == nil {
		it.contact = &contact{heard: now}
		d.contacts[it.destination] = it.contact
	}
	it.contact.inFlight++
	return it.probe
}

// endAt records that an item has ended at its destination.
func (d *Dispatcher) endAt(it *item, now time.Time) {
	if it.doubtful {
		it.doubtful = false
		d.doubtful--
	}
	if it.probe {
		it.probe = false
		if known := d.destinations[it.destination]; known != nil && known.inFlight > 0 {
			known.inFlight--
		}
	}
	if it.contact == nil {
		return
	}
	it.contact.heard = now
	if it.contact.inFlight--; it.contact.inFlight == 0 {
		delete(d.contacts, it.destination)
	}
	if d.silent[it.destination] {
		d.letGo(it.destination)
	}
	it.contact = nil
}

// contact is a destination to which calls are in flight.
type contact struct {
	inFlight int
	heard    time.Time // when the first of them began, or the last one ended
}

// holdIfSilent stops the items of a destination that leaves its calls unanswered, and returns true; false if it does
// not.
func (d *Dispatcher) holdIfSilent(destination string, now time.Time) bool {
	c := d.contacts[destination]
	if c == nil || now.Sub(c.heard) < patience {
		return false
	}
	d.silent[destination] = true
	d.queue.Hold(destination, true)
	return true
}

// letGo lets the items of a destination go again after holdIfSilent.
func (d *Dispatcher) letGo(destination string) {
	delete(d.silent, destination)
	d.queue.Hold(destination, false)
	if g := d.governors[destination]; g != nil {
		d.hold(destination, g)
	}
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
	known := d.troubled(f.destination, f.now)
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
	f.noted()
	d.parkForDestination(f.item, f.past.lastError, d.destinations[f.destination].circuit.OpenSince(), f.now)
}

// parkForDestination parks an item until its destination is tried again. since is when that got into trouble, or zero.
func (d *Dispatcher) parkForDestination(it *item, why string, since, now time.Time) {
	d.pending--
	it.lane.parkRetrying(it, why, now.Add(d.destinations[it.destination].circuit.Postponement(since, now)))
}

func (d *Dispatcher) destinationIsBack(name string) {
	d.log.Info("destination is available again", "destination", name)
	d.observeDestination(name, nil)
}

// Why deliveries wait for their destination, if nothing else is known.
var (
	errThrottled = errors.New("its destination has asked to wait")
	errCrowded   = errors.New("its destination has failed, and so many have that their share of the slots is used")
)

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
