package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/budget"
	"github.com/waybill-go/waybill/framework/forwarder/internal/keyqueue"
	"github.com/waybill-go/waybill/framework/forwarder/internal/memory"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/forwarder/internal/window"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
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
	held      []*item   // items that may begin once the lane is no longer suspended
	inFlight  int
	abandoned bool // deliveries in flight are not waited for any more

	keys *keyqueue.Keys[*item]
	busy map[store.Ref]parkedRow // parked deliveries that the lane works on
	due  int                     // of these, retrying and scheduled ones
	// busyBytes is roughly their memory.
	busyBytes int
	memory    *memory.Lane // deliveries made but not written under the previous lease
	made      []Settlement // delivered after the lane was over

	// before are offsets that were settled before the lease began; unmet is how many of them
	// have not been read yet.
	before []store.OffsetRange
	unmet  int64

	out     Outcome       // since the last Take
	rebases int           // how often the log was read again from its oldest row
	rows    int           // in memory: not settled, or not written
	space   *budget.Share // memory of the rows
	ahead   int           // number of offset ranges settled ahead of the position
	// settledAhead is the number of rows in these ranges.
	settledAhead int
	room         chan struct{} // capacity 1: there may be room
	full         bool          // the reader waits for room
	dirty        chan struct{} // capacity 1: there is something to take
	plenty       chan struct{} // capacity 1: there is much to take
	linger       *time.Timer   // signals dirty when it fires
	lingers      bool          // linger is running

	rounds // for sinks with transactions
}

// Join begins the work on a leased lane. leased is when the lease was requested. The end of ctx
// cancels deliveries.
func (d *Dispatcher) Join(ctx context.Context, lease store.Lease, leased time.Time, ttl time.Duration) *Lane {
	l := &Lane{
		dispatcher: d, lease: lease,
		log:       d.LogOf(lease.Lane.Database).With("lane", lease.Lane.Number),
		deadlines: deadlines{parent: ctx},
		expires:   leased.Add(ttl),
		keys:      keyqueue.New[*item](),
		busy:      make(map[store.Ref]parkedRow),
		before:    lease.Settled,
		unmet:     store.CountOffsets(lease.Settled),
		room:      make(chan struct{}, 1),
		dirty:     make(chan struct{}, 1),
		plenty:    make(chan struct{}, 1),
	}
	l.linger = time.AfterFunc(time.Hour, l.mark)
	l.linger.Stop()
	l.out.Passed = l.unmet == 0
	l.space = d.budget.Join(l.look)
	d.mu.Lock()
	defer d.mu.Unlock()
	l.halt = d.settings.OnDead == policy.OnDeadHalt
	l.memory = d.memories.Recall(lease)
	l.stats = d.statsOf(lease.Lane.Database)
	d.lanes[l] = true
	d.shareRate()
	return l
}

// Add adds the next page of the log.
func (l *Lane) Add(read store.Page) { l.add(read, false) }

// Offer is Add if there is room for the page; otherwise it adds nothing and returns false.
func (l *Lane) Offer(read store.Page) (taken bool) { return l.add(read, true) }

func (l *Lane) add(read store.Page, optional bool) (taken bool) {
	d := l.dispatcher
	passesBy, destinations := d.caller.PassesBy(read), d.caller.Destinations(read)
	d.mu.Lock()
	defer d.mu.Unlock()
	restart := read.Rebased != ""
	if n := len(read.Envelopes); optional && n > 0 && !restart && (l.rows+n > WindowRows || l.crowded() || l.space.Full()) {
		return false
	}
	if restart {
		l.log.Warn("the log is read again from its oldest row", "reason", read.Rebased)
		if d.observer != nil {
			d.observer.Rebased(l.lease.Lane, read.Rebased)
		}
		l.rebases++
		l.occupy(-l.rows, -l.space.Used())
		l.before, l.unmet = nil, 0
	}
	l.out.add(read, restart)
	if n := len(read.Envelopes); n > 0 {
		l.addRows(read, l.out.last(), passesBy, destinations)
	}
	if read.CaughtUp {
		l.memory.ForgetLog()
		l.owed.ForgetLog()
	}
	if read.CaughtUp || l.unmet == 0 {
		l.pass()
	}
	return true
}

func (l *Lane) addRows(read store.Page, page *window.Page, passesBy []bool, destinations []string) {
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
		made, remembered := l.remembered(it)
		switch {
		case l.unmet > 0 && store.ContainsOffset(l.before, it.Offset):
			l.unmet--
			l.settle(it, Settlement{})
		case remembered:
			l.settle(it, made)
		case passesBy != nil && passesBy[i]:
			l.stats.PassedBy++
			l.settle(it, Settlement{})
		case it.DeliverAt.After(read.Asked): // not time.Now: later cancellations are not known
			l.park(it, store.StateScheduled, it.DeliverAt, "")
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
			if s.Delivered {
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
	l.before, l.unmet = nil, 0
	if !l.out.Passed {
		l.out.Passed = true
		l.mark()
	}
}

// enqueue handles an item of the log: it goes now, waits behind others of its key, or is parked
// as blocked.
func (l *Lane) enqueue(it *item) {
	d := l.dispatcher
	if it.Key == "" {
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
	l.settle(it, Settlement{Receipt: receipt, Delivered: true, Ask: l.advance(it)})
}

// passedBy settles an item that is not for the sink.
func (l *Lane) passedBy(it *item) {
	l.settle(it, Settlement{Ask: l.advance(it)})
}

// failed parks an item for its next attempt.
func (l *Lane) failed(it *item, err error, pause time.Duration) {
	l.dispatcher.logFailure(slog.LevelWarn, "delivery failed, retrying", it, err, "pause", pause.Round(time.Millisecond))
	l.park(it, store.StateRetrying, time.Now().Add(pause), err.Error())
	l.holdKey(it)
}

// postpone parks an item whose destination must wait. It spends no attempt.
func (l *Lane) postpone(it *item, why error, pause time.Duration) {
	l.park(it, store.StateRetrying, time.Now().Add(pause), why.Error())
	l.holdKey(it)
}

// died parks an item as dead.
func (l *Lane) died(it *item, err error) {
	l.dispatcher.logFailure(slog.LevelError, "delivery is dead", it, err)
	if l.halt && it.Key != "" {
		l.parkDead(it, err, false)
		l.holdKey(it)
		return
	}
	l.parkDead(it, err, l.advance(it))
}

func (l *Lane) parkDead(it *item, err error, ask bool) {
	p := it.parked(store.StateDead)
	p.LastError = policy.Text(err.Error(), maxErrorText)
	l.settle(it, Settlement{Ask: ask, Parked: &p, Dead: deadReason(err)})
}

// deadReason returns the reason for the error with which an item died.
func deadReason(err error) policy.DeadReason {
	class, _ := sinks.Classify(err)
	switch {
	case errors.Is(err, route.ErrExpression):
		return policy.DeadRoute
	case errors.Is(err, ErrUnknownTooLong):
		return policy.DeadUnknown
	case class == sinks.ClassPermanent, class == sinks.ClassInvalid:
		return policy.DeadRefused
	}
	return policy.DeadAttempts
}

// maxErrorText bounds the error text kept with a parked delivery, in bytes.
const maxErrorText = 2000

// park settles an item by parking it.
func (l *Lane) park(it *item, state store.State, due time.Time, reason string) {
	p := it.parked(state)
	p.DueAt, p.LastError = due, policy.Text(reason, maxErrorText)
	l.settle(it, Settlement{Parked: &p})
}

// settle ends an item's turn.
func (l *Lane) settle(it *item, s Settlement) {
	s.item = it
	l.out.Settled = append(l.out.Settled, s)
	switch {
	case l.ledger != nil:
		l.settledInRound()
	case len(l.out.Settled) == plenty:
		l.mark()
		select {
		case l.plenty <- struct{}{}:
		default:
		}
	case !it.fromLog() || s.Parked != nil || s.Ask || l.full:
		l.mark()
	case !l.lingers:
		l.lingers = true
		l.linger.Reset(lingerTime)
	}
}

// lingerTime is how long a settled row of the log waits for others before it is written. No
// other delivery waits for it; a crash repeats what was delivered within that time.
const lingerTime = 25 * time.Millisecond

// advance lets the next item of a key go after its head has ended. It returns whether the
// parked table must be queried for the next one.
func (l *Lane) advance(it *item) (ask bool) {
	if it.Key == "" || it.chained { // chained: the next one is already in flight
		return false
	}
	next, ok, ask := l.keys.Next(it.Key)
	if ok {
		l.dispatcher.offer(next)
	}
	return ask
}

// holdKey parks the items waiting behind a head that was parked. Those from the parked table
// just stay there.
func (l *Lane) holdKey(it *item) {
	if it.Key != "" {
		l.parkWaiting(l.keys.Hold(it.Key))
	}
}

func (l *Lane) parkWaiting(waiting []*item) {
	l.dispatcher.pending -= len(waiting)
	for _, it := range waiting {
		if it.fromLog() {
			l.park(it, store.StateBlocked, time.Time{}, "")
		} else {
			l.removeBusy(store.RefOf(it.Envelope))
		}
	}
}

// removeBusy removes a parked delivery from those that the lane works on; it is only in the table then.
func (l *Lane) removeBusy(ref store.Ref) {
	if row, ok := l.busy[ref]; ok {
		delete(l.busy, ref)
		l.busyBytes -= row.bytes
		if row.state != store.StateBlocked {
			l.due--
		}
	}
}

// expired reports whether the lease has expired. While a machine is suspended, its monotonic
// clock stops but its wall clock does not; and setting back the wall clock must not extend a
// lease. So the lease is valid only while both clocks say so.
func expired(now, expires time.Time) bool {
	return now.After(expires) || now.Round(0).After(expires.Round(0))
}

// ends reports that no delivery may begin: the lane is being closed, or its lease has expired,
// so that another forwarder may have it already.
func (l *Lane) ends(now time.Time) bool {
	if expired(now, l.expires) {
		l.giveUp(ErrLeaseExpired)
	}
	return l.over != nil || l.closing
}

// giveUp ends the work on the lane without writing anything more.
func (l *Lane) giveUp(why error) {
	if l.over == nil {
		l.over = why
		l.mark()
		l.dispatcher.drained.Broadcast() // EndRound may be waiting
	}
}

// GiveUp ends the work on the lane without writing anything more.
func (l *Lane) GiveUp(why error) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	l.giveUp(why)
}

// mark signals that there is something to take.
func (l *Lane) mark() {
	select {
	case l.dirty <- struct{}{}:
	default:
	}
}
