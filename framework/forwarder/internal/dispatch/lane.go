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

// Bounds of what a lane has in memory, whatever the backlog.
const (
	// PageRows is how many rows a page has at most.
	PageRows = 2000
	// WindowRows is how many rows a lane has at most that are not settled, or not
	// written. A crash repeats no more.
	WindowRows = 8 * PageRows

	// leastRows is how much room is worth reading a page for.
	leastRows = PageRows / 4

	windowBytes = 64 << 20 // the last page read may exceed it
	// windowRanges bounds what is settled ahead of the position: each checkpoint
	// writes it.
	windowRanges = WindowRows

	// envelopeBytes is about what an item takes beside its payload.
	envelopeBytes = 500
)

// ErrLeaseExpired ends the work on a lane whose lease has run out.
var ErrLeaseExpired = errors.New("the lease ran out before the database could be reached")

// Lane is the dispatch half of one leased lane: its keys, what is in flight, and what
// came of it. The settle half, package settle, takes that with Take and hands parked
// deliveries back with Resume.
//
// All fields are guarded by the dispatcher's mutex.
type Lane struct {
	dispatcher *Dispatcher
	lease      store.Lease
	log        *slog.Logger
	deadlines  deadlines
	halt       bool // a dead delivery holds its key back

	closing   bool      // no further delivery begins
	over      error     // nothing of this lane counts any more, because of this
	expires   time.Time // when the lease ends unless it is renewed
	suspended bool      // no delivery begins while checkpoints fail
	aside     []*item   // what may go once it is not suspended
	inFlight  int
	abandoned bool // deliveries in flight are waited for no longer

	keys *keyqueue.Keys[*item]
	busy map[store.Ref]parkedRow // parked deliveries in the engine's hands
	due  int                     // of these, retrying and scheduled ones
	// busyBytes is about what they take.
	busyBytes int
	memory    *memory.Lane // what the lease before has delivered and not written
	made      []Settlement // delivered after the lane was over

	// before are offsets that were settled before the lease began; unmet is how many of
	// them have not been read yet.
	before []store.OffsetRange
	unmet  int64

	out    Outcome       // since the last Take
	number int           // of the log: it changes when the log is read again from its oldest row
	rows   int           // in memory, not settled or not written
	space  *budget.Share // what they take
	ahead  int           // ranges that are settled ahead of the position
	// settledAhead is how many rows that is.
	settledAhead int
	room         chan struct{} // capacity 1: there may be room
	full         bool          // the reader waits for room
	dirty        chan struct{} // capacity 1: there is something to take
	plenty       chan struct{} // capacity 1: there is much of it
	linger       *time.Timer   // marks the lane
	lingers      bool          // until then

	rounds // where the sink has transactions
}

// Join begins the work on a leased lane. leased is when the lease was asked for.
// Deliveries are cut off when ctx is done.
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
	d.lanes[l] = true
	d.shareRate()
	return l
}

// Add takes in a page of the log that follows those before it.
func (l *Lane) Add(read store.Page) { l.add(read, false) }

// Offer is Add for a page that need not be taken: it returns false, and takes nothing,
// if there is no room for the page.
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
		l.number++
		l.taken(-l.rows, -l.space.Used())
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
	r := &rows{page: page, items: make([]item, len(read.Envelopes)), left: len(read.Envelopes), log: l.number}
	for i := range read.Envelopes {
		r.bytes += len(read.Envelopes[i].Payload) + envelopeBytes
	}
	l.taken(len(r.items), r.bytes)
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
			l.dispatcher.stats.PassedBy++
			l.settle(it, Settlement{})
		case it.DeliverAt.After(read.Asked): // not now: what was cancelled since then would go
			l.park(it, store.StateScheduled, it.DeliverAt, "", false)
		default:
			l.enqueue(it)
		}
	}
}

// remembered returns the settlement of an item that the lease before has delivered.
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

// Remember keeps what was delivered and is not written, for the next lease of the lane.
// unwritten is what Take gave and no checkpoint wrote.
func (l *Lane) Remember(unwritten []Settlement) {
	d := l.dispatcher
	d.mu.Lock()
	defer d.mu.Unlock()
	if l.ledger != nil {
		l.keepVerdicts() // what was not committed is not delivered, and what was is in the ledger
		return
	}
	m := memory.New(l.lease)
	m.AddAll(l.memory) // what was not met in this lease either
	for _, all := range [][]Settlement{unwritten, l.out.Settled, l.made} {
		for _, s := range all {
			if s.Delivered {
				m.Add(s.item.ref(), memory.Made{Receipt: s.Receipt, Row: s.item.row()})
			}
		}
	}
	d.memories.Keep(m)
	if m.Len() > 0 {
		l.log.Info("deliveries that are made and not written are remembered", "count", m.Len())
	}
}

// pass notes that all that was settled before the lease began has been read: what is
// parked of a key from there on is free to go.
func (l *Lane) pass() {
	l.before, l.unmet = nil, 0
	if !l.out.Passed {
		l.out.Passed = true
		l.mark()
	}
}

// taken counts rows and bytes that take room.
func (l *Lane) taken(rows, bytes int) {
	l.rows += rows
	if bytes != 0 {
		l.space.Take(bytes)
	}
}

// enqueue gives an item of the log its turn: now, behind what its key has waiting, or
// parked behind what holds its key.
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
		l.park(it, store.StateBlocked, time.Time{}, "", false)
	}
}

// delivered settles an item that the sink has taken.
func (l *Lane) delivered(it *item, receipt notification.Receipt) {
	l.settle(it, Settlement{Receipt: receipt, Delivered: true, Ask: l.advance(it)})
}

// passed settles an item that is not for the sink.
func (l *Lane) passed(it *item) {
	l.settle(it, Settlement{Ask: l.advance(it)})
}

// failed parks an item for its next attempt.
func (l *Lane) failed(it *item, err error, pause time.Duration) {
	l.log.WarnContext(l.dispatcher.logged(), "delivery failed, retrying", "delivery", &it.Delivery, "error", err, "pause", pause.Round(time.Millisecond))
	l.park(it, store.StateRetrying, time.Now().Add(pause), err.Error(), false)
	l.holdKey(it)
}

// postpone parks an item whose destination has to be left alone. No attempt is spent.
func (l *Lane) postpone(it *item, why error, pause time.Duration) {
	l.park(it, store.StateRetrying, time.Now().Add(pause), why.Error(), false)
	l.holdKey(it)
}

// died parks an item for good.
func (l *Lane) died(it *item, err error) {
	l.log.ErrorContext(l.dispatcher.logged(), "delivery is dead", "delivery", &it.Delivery, "error", err)
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

// deadReason says why an item is given up, by the error that it is given up for.
func deadReason(err error) policy.DeadReason {
	class, _ := sinks.Classify(err)
	switch {
	case errors.Is(err, route.ErrExpression):
		return policy.DeadRoute
	case errors.Is(err, ErrTooOld):
		return policy.DeadTooOld
	case errors.Is(err, ErrUnknownTooLong):
		return policy.DeadUnknown
	case class == sinks.ClassPermanent:
		return policy.DeadRefused
	}
	return policy.DeadAttempts
}

// maxErrorText bounds what of an error is kept with a parked delivery, in bytes.
const maxErrorText = 2000

// park settles an item by a row in the parked table.
func (l *Lane) park(it *item, state store.State, due time.Time, reason string, ask bool) {
	p := it.parked(state)
	p.DueAt, p.LastError = due, policy.Text(reason, maxErrorText)
	l.settle(it, Settlement{Ask: ask, Parked: &p})
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

// lingerTime is how long a row of the log that is settled waits for others before it is
// written. Nothing waits for it; a crash repeats what was delivered within that time.
const lingerTime = 25 * time.Millisecond

// advance lets the next one of a key go, now that its head holds nothing back. It
// returns whether the parked table is to be asked for the next one.
func (l *Lane) advance(it *item) (ask bool) {
	if it.Key == "" || it.chained { // chained: the next one is under way already
		return false
	}
	next, ok, ask := l.keys.Next(it.Key)
	if ok {
		l.dispatcher.offer(next)
	}
	return ask
}

// holdKey parks what waits behind a head that is parked now. What was parked before
// stays in the table.
func (l *Lane) holdKey(it *item) {
	if it.Key != "" {
		l.parkWaiting(l.keys.Hold(it.Key))
	}
}

func (l *Lane) parkWaiting(waiting []*item) {
	l.dispatcher.pending -= len(waiting)
	for _, it := range waiting {
		if it.fromLog() {
			l.park(it, store.StateBlocked, time.Time{}, "", false)
		} else {
			l.letGo(store.RefOf(it.Envelope))
		}
	}
}

// letGo notes that a parked delivery is in the table only.
func (l *Lane) letGo(ref store.Ref) {
	if row, ok := l.busy[ref]; ok {
		delete(l.busy, ref)
		l.busyBytes -= row.bytes
		if row.state != store.StateBlocked {
			l.due--
		}
	}
}

// expired says whether the lease has run out. A machine that is suspended stops the
// monotonic clock and not the wall clock; a wall clock that is set back does not
// lengthen a lease. So both must say that it lasts.
func expired(now, expires time.Time) bool {
	return now.After(expires) || now.Round(0).After(expires.Round(0))
}

// ends says that no delivery may begin: the lane is being closed, or its lease has run
// out, so that another forwarder may have it already.
func (l *Lane) ends(now time.Time) bool {
	if expired(now, l.expires) {
		l.giveUp(ErrLeaseExpired)
	}
	return l.over != nil || l.closing
}

// giveUp ends the work on the lane, with nothing written.
func (l *Lane) giveUp(why error) {
	if l.over == nil {
		l.over = why
		l.mark()
		l.dispatcher.drained.Broadcast() // a round may wait for its end
	}
}

// GiveUp ends the work on the lane, with nothing written.
func (l *Lane) GiveUp(why error) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	l.giveUp(why)
}

// mark says that there is something to take.
func (l *Lane) mark() {
	select {
	case l.dirty <- struct{}{}:
	default:
	}
}

// WaitForRoom waits until there is room for a page and returns how many rows it may
// have; false once ctx is done.
func (l *Lane) WaitForRoom(ctx context.Context) (rows int, ok bool) {
	for {
		if rows := l.hasRoom(); rows > 0 {
			return min(rows, PageRows), true
		}
		select {
		case <-ctx.Done():
			return 0, false
		case <-l.room:
		}
	}
}

func (l *Lane) hasRoom() (rows int) {
	d := l.dispatcher
	d.mu.Lock()
	defer d.mu.Unlock()
	rows = WindowRows - l.rows
	waits := l.space.Wait()
	if rows < leastRows || l.crowded() || waits {
		rows = 0
	}
	l.full = rows <= 0
	if l.full {
		l.mark() // what is settled takes room until it is written
	}
	if l.full && !waits {
		l.spill()
	}
	return rows
}

// crowded says that the lane is not to read, however few rows it has.
func (l *Lane) crowded() bool {
	return l.space.Used() >= windowBytes || l.ahead >= windowRanges
}

// look makes the reader check whether there is room.
func (l *Lane) look() {
	select {
	case l.room <- struct{}{}:
	default:
	}
}

// WaitUntilSettled waits until all that was read is settled and written, and what a ledger names was met;
// false once ctx is done.
func (l *Lane) WaitUntilSettled(ctx context.Context) bool {
	patience := time.NewTimer(meetTime)
	defer patience.Stop()
	for patient := true; ; {
		l.dispatcher.mu.Lock()
		l.pass()
		left := l.rows
		if patient {
			left += len(l.owed)
		}
		l.full = true
		l.mark()
		l.dispatcher.mu.Unlock()
		if left == 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-patience.C:
			patient = false
		case <-l.room:
		}
	}
}

// A key is hot if at least 1/hotShare of a window waits for that key alone. Hot keys
// are spilled only if at least 1/otherShare of the window is of others.
const (
	hotShare   = 4
	otherShare = 16
)

// spill parks what waits for hot keys, so that there is room for others. It does so
// only while the sink would have time for these, and if there were others so far: a
// log of few keys is better read slowly than copied.
func (l *Lane) spill() {
	d := l.dispatcher
	if d.queue.Len() > 0 || d.breaker.IsOpen() || d.calls >= d.settings.Parallelism.Most() {
		return
	}
	var hot []string
	waiting := 0
	for name, n := range l.keys.Crowded(l.rows / hotShare) {
		hot = append(hot, name)
		waiting += n
	}
	// What is settled behind the hot keys' first row was of others.
	if span := l.rows + l.settledAhead; span-waiting < span/otherShare {
		return
	}
	for _, name := range hot {
		l.parkWaiting(l.keys.Spill(name))
	}
}
