package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder/internal/keyqueue"
	"github.com/waybill-go/waybill/framework/forwarder/internal/memory"
	"github.com/waybill-go/waybill/framework/forwarder/internal/presence"
	"github.com/waybill-go/waybill/framework/forwarder/internal/window"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// ErrLeaseExpired: the lease of the lane expired.
var ErrLeaseExpired = errors.New("the lease expired before it could be renewed in the database")

// Lane is the dispatch half of one leased lane: its keys, deliveries in flight, and their
// outcome. The settle half, package settle, takes the outcome with Take and hands parked
// deliveries back with the Resume methods.
//
// The dispatcher's mutex guards all fields.
type Lane struct {
	dispatcher *Dispatcher
	lease      store.Lease
	stats      *Stats // of its database
	log        *slog.Logger
	deadlines  deadlines
	halt       bool // dead deliveries hold back their key

	closing   bool      // no further delivery begins
	over      error     // why the work on the lane has ended; its later results do not count
	expires   time.Time // when the lease ends unless it is renewed
	suspended bool      // no delivery begins while checkpoints fail
	shut      bool      // no delivery begins while others may take this process for dead
	held      []*item   // items that may begin once the lane is neither suspended nor shut
	term      presence.Term
	again     func() // reopen, which would be allocated for each item otherwise
	inFlight  int
	abandoned bool // deliveries in flight are not waited for any more

	keys    *keyqueue.Keys[*item]
	gather  gather       // deliveries of which only the newest of a key is made
	busy    busy         // parked deliveries that the lane works on
	before  before       // what was settled before the lease began
	memory  *memory.Lane // deliveries made but not written under the previous lease
	made    []Settlement // delivered after the lane was over
	out     Outcome      // since the last Take
	rebases int          // how often the log was read again from its oldest row
	occupied
	signals
	rounds // for sinks with transactions
}

// Join begins the work on a leased lane. leased is when the lease was requested, and term the term at that
// time. The end of ctx cancels deliveries.
func (d *Dispatcher) Join(ctx context.Context, lease store.Lease, leased time.Time, ttl time.Duration, term presence.Term) *Lane {
	l := &Lane{
		dispatcher: d, lease: lease, term: term,
		log:       d.LogOf(lease.Lane.Database).With("lane", lease.Lane.Number),
		deadlines: deadlines{parent: ctx},
		expires:   leased.Add(ttl),
		keys:      keyqueue.New[*item](),
		busy:      busy{rows: make(map[store.Ref]parkedRow), groups: make(map[string]bool)},
		before:    before{lease.Settled, store.CountOffsets(lease.Settled)},
		signals:   newSignals(),
	}
	l.again = l.reopen
	l.gather = gather{newest: make(map[string]*gathered), alarm: newAlarm(l.letDueGo)}
	l.out.Passed = l.before.isMet()
	l.space = d.budget.Join(l.look)
	d.mu.Lock()
	defer d.mu.Unlock()
	l.halt = d.settings.OnDead == settings.OnDeadHalt
	l.memory = d.memories.Recall(lease)
	l.stats = d.statsOf(lease.Lane.Database)
	d.lanes[l] = true
	d.shareRate()
	return l
}

// Add adds the next page of the log.
func (l *Lane) Add(read store.Page) { l.add(read, false) }

// offerTime bounds the time of Offer for conditions, groups and hours: other lanes wait for the same page.
const offerTime = 200 * time.Millisecond

// Offer is Add if there is room for the page, and its expressions are quick; otherwise it adds nothing and returns
// false.
func (l *Lane) Offer(read store.Page) (taken bool) { return l.add(read, true) }

func (l *Lane) add(read store.Page, optional bool) (taken bool) {
	d := l.dispatcher
	n, restart := len(read.Envelopes), read.Rebased != ""
	optional = optional && n > 0 && !restart
	ctx, long := l.deadlines.parent, d.caller.Groups != nil || d.hours.Load() != nil
	if optional && long {
		within, cancel := context.WithTimeout(ctx, d.offering)
		defer cancel()
		ctx = within
	}
	passesBy, destinations, timings := d.caller.PassesBy(ctx, read), d.caller.Destinations(read), d.timings(ctx, read)
	groups := d.caller.GroupsOf(ctx, read, passesBy)
	if long && ctx.Err() != nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if optional && (l.rows+n > WindowRows || l.crowded() || l.space.Full()) {
		return false
	}
	if restart {
		l.log.Warn("the log is read again from its oldest row", "reason", read.Rebased)
		event.Tell(d.observer, &event.Rebase{Lane: l.lease.Lane, Reason: read.Rebased})
		l.rebases++
		l.occupy(-l.rows, -l.space.Used())
		l.gather.forget()
		l.before = before{}
	}
	l.out.add(read, restart)
	if n > 0 {
		l.addRows(read, l.out.last(), passesBy, destinations, groups, timings)
	}
	if read.CaughtUp {
		l.memory.ForgetLog()
		l.owed.ForgetLog()
	}
	if read.CaughtUp || l.before.isMet() {
		l.pass()
	}
	return true
}

func (l *Lane) addRows(read store.Page, page *window.Page, passesBy []bool, destinations, groups []string, timings []timing) {
	r := &rows{page: page, items: make([]item, len(read.Envelopes)), left: len(read.Envelopes), rebases: l.rebases}
	for i := range read.Envelopes {
		r.bytes += len(read.Envelopes[i].Payload) + envelopeBytes
	}
	l.occupy(len(r.items), r.bytes)
	for i := range r.items {
		it := &r.items[i]
		it.Envelope = &read.Envelopes[i]
		it.Sink = l.dispatcher.name
		it.lane, it.rows, it.index = l, r, i
		if destinations != nil {
			it.destination = destinations[i]
		}
		if timings != nil {
			it.timing = timings[i]
		}
		made, remembered := l.remembered(it)
		switch {
		case l.before.meet(it.Offset):
			l.end(it, Settlement{})
		case remembered:
			l.end(it, made)
		case passesBy != nil && passesBy[i]:
			l.stats.PassedBy++
			l.end(it, Settlement{})
		case it.DeliverAt.After(read.Asked): // not time.Now: later cancellations are not known
			l.park(it, store.StateScheduled, it.DeliverAt, "")
		case groups != nil:
			l.collect(it, groups[i])
		default:
			l.enqueue(it)
		}
	}
}

// remembered returns the settlement of an item that was delivered under the previous lease.
func (l *Lane) remembered(it *item) (s Settlement, ok bool) {
	if len(l.owed) > 0 && l.owed.Met(it.ref(), it.row()) {
		it.Attempt++
		return Settlement{Delivered: true}, true
	}
	if l.memory.Len() == 0 {
		return s, false
	}
	made, ok := l.memory.Met(it.ref(), it.row())
	if ok {
		it.Attempt = made.Attempt
	}
	return Settlement{Receipt: made.Receipt, Delivered: ok}, ok
}

// Remember keeps deliveries that were made but not written, for the next lease of the lane.
// unwritten is what Take returned and no checkpoint wrote.
func (l *Lane) Remember(unwritten []Settlement) {
	d := l.dispatcher
	d.mu.Lock()
	defer d.mu.Unlock()
	if l.ledger != nil {
		l.keepVerdicts() // uncommitted deliveries were not made; the ledger knows the others
		return
	}
	m := memory.New(l.lease)
	m.AddAll(l.memory) // deliveries that this lease did not meet either
	for _, all := range [][]Settlement{unwritten, l.out.Settled, l.made} {
		for _, s := range all {
			if s.Delivered && !s.item.unit.isPartial() {
				m.Add(s.item.ref(), memory.Made{Receipt: s.Receipt, Row: s.item.row()})
			}
		}
	}
	d.memories.Keep(m)
	if m.Len() > 0 {
		l.log.Info("deliveries that were made but not written are remembered", "count", m.Len())
	}
}

// pass records that all offsets settled before the lease began have been read. From then on
// parked deliveries of a key are free to go.
func (l *Lane) pass() {
	l.before = before{}
	if !l.out.Passed {
		l.out.Passed = true
		l.signal()
	}
}

// enqueue handles an item of the log: it goes now, waits behind others of its key, or is parked
// as blocked.
func (l *Lane) enqueue(it *item) {
	d := l.dispatcher
	if it.Key == "" || d.loosen(it) {
		d.pending++
		d.offer(it)
		return
	}
	switch l.keys.Enqueue(it.Key, it) {
	case keyqueue.Go:
		d.pending++
		d.offer(it)
	case keyqueue.Wait:
		d.behind()
	case keyqueue.Park:
		l.park(it, store.StateBlocked, time.Time{}, "")
	}
}

// delivered settles an item that was delivered.
func (l *Lane) delivered(it *item, receipt notification.Receipt) {
	l.end(it, Settlement{Receipt: receipt, Delivered: true, Ask: l.advance(it)})
}

// passedBy settles an item that is not for the sink.
func (l *Lane) passedBy(it *item) {
	l.end(it, Settlement{Ask: l.advance(it)})
}

// parkRetrying parks an item until it is due again, and what waits behind it.
func (l *Lane) parkRetrying(it *item, why string, due time.Time) {
	l.park(it, store.StateRetrying, due, why)
	l.holdKey(it)
}

// died parks an item as dead.
func (l *Lane) died(it *item, err error) {
	if l.halt && it.Key != "" {
		l.parkDead(it, err, false)
		l.holdKey(it)
		return
	}
	l.parkDead(it, err, l.advance(it))
}

func (l *Lane) parkDead(it *item, err error, ask bool) {
	p := it.parked(store.StateDead)
	p.LastError = it.past.lastError
	l.end(it, Settlement{Ask: ask, Parked: &p, Dead: deadReason(err)})
}

// deadReason returns the reason for the error with which an item died.
func deadReason(err error) event.DeadReason {
	class, _ := sinks.Classify(err)
	switch {
	case errors.Is(err, route.ErrExpression):
		return event.DeadRoute
	case errors.Is(err, ErrUnknownTooLong):
		return event.DeadUnknown
	case class == sinks.ClassPermanent, class == sinks.ClassInvalid:
		return event.DeadRefused
	}
	return event.DeadAttempts
}

// maxErrorText bounds the error text kept with a parked delivery, in bytes.
const maxErrorText = 2000

// park settles an item by parking it.
func (l *Lane) park(it *item, state store.State, due time.Time, reason string) {
	p := it.parked(state)
	p.DueAt, p.LastError = due, reason
	l.end(it, Settlement{Parked: &p})
}

// end ends an item's turn.
func (l *Lane) end(it *item, s Settlement) {
	s.item = it
	l.out.Settled = append(l.out.Settled, s)
	switch {
	case l.ledger != nil:
		l.endedInRound()
	case len(l.out.Settled) == plenty:
		l.signal()
		raise(l.plenty)
	case !it.fromLog() || s.Parked != nil || s.Ask || l.needsRoom():
		l.signal()
	default:
		l.signalSoon()
	}
}

// advance lets the next item of a key go after its head has ended. It returns whether the
// parked table must be queried for the next one.
func (l *Lane) advance(it *item) (ask bool) {
	switch {
	case it.Key == "", it.chained: // chained: the next one is already in flight
		return false
	case it.loose:
		return l.asksAfter(it)
	}
	next, ok, ask := l.keys.Next(it.Key)
	if ok {
		l.dispatcher.offer(next)
	}
	return ask
}

// holdKey parks the items waiting behind a head that was parked. Those from the parked table
// just stay there.
func (l *Lane) holdKey(it *item) { l.parkWaiting(l.takeWaiting(it)) }

func (l *Lane) parkWaiting(waiting []*item) {
	l.dispatcher.pending -= len(waiting)
	for _, it := range waiting {
		if it.fromLog() {
			l.park(it, store.StateBlocked, time.Time{}, "")
		} else {
			l.busy.remove(store.RefOf(it.Envelope))
		}
	}
}

// expired reports whether the lease has expired. While a machine is suspended, its monotonic
// clock stops but its wall clock does not; and setting back the wall clock must not extend a
// lease. So the lease is valid only while both clocks say so.
func expired(now, expires time.Time) bool {
	return now.After(expires) || now.Round(0).After(expires.Round(0))
}

// giveUpIfExpired gives up a lane whose lease has expired: another forwarder may have it already.
func (l *Lane) giveUpIfExpired(now time.Time) {
	if expired(now, l.expires) {
		l.giveUp(ErrLeaseExpired)
	}
}

// isShut reports that others may take this process for dead, and holds the items of the lane until they no
// longer may. If they have taken its leases, it gives up the lane.
func (l *Lane) isShut(it *item, now time.Time) bool {
	open, over := l.term.Check(now, l.again)
	switch {
	case open:
		return false
	case over:
		l.giveUp(store.ErrLeaseLost)
		l.dispatcher.pending--
	default:
		l.shut = true
		l.held = append(l.held, it)
		l.hold()
	}
	l.dispatcher.queue.Done(it)
	return true
}

func (l *Lane) reopen() {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	l.shut = false
	l.letGo()
}

// isEnding reports that no further delivery may begin.
func (l *Lane) isEnding() bool { return l.over != nil || l.closing }

// giveUp ends the work on the lane without writing anything more.
func (l *Lane) giveUp(why error) {
	if l.over == nil {
		l.over = why
		l.signal()
		l.dispatcher.drained.Broadcast() // EndRound may be waiting
	}
}

// GiveUp ends the work on the lane without writing anything more.
func (l *Lane) GiveUp(why error) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	l.giveUp(why)
}

// before is what was settled before the lease began.
type before struct {
	ranges []store.OffsetRange
	unmet  int64 // offsets of the ranges that have not been read yet
}

func (b *before) isMet() bool { return b.unmet == 0 }

// meet notes that an offset is read, and returns whether it was settled before.
func (b *before) meet(offset int64) bool {
	if b.isMet() || !store.ContainsOffset(b.ranges, offset) {
		return false
	}
	b.unmet--
	return true
}
