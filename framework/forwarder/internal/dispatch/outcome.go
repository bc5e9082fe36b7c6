package dispatch

import (
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/fairqueue"
	"github.com/waybill-go/waybill/framework/forwarder/internal/keyqueue"
	"github.com/waybill-go/waybill/framework/forwarder/internal/memory"
	"github.com/waybill-go/waybill/framework/forwarder/internal/window"
	"github.com/waybill-go/waybill/framework/store"
)

// Outcome is what has happened in a lane since the last Take.
type Outcome struct {
	// Read are pages of the log, in order.
	Read []Read
	// Settled are deliveries whose turn has ended, in order.
	Settled []Settlement
	// Passed means that all offsets settled before the lease began have been read. Until then
	// the parked table is not queried for any key: the log may have earlier rows of the key.
	Passed bool
	// Parking numbers what was parked so far; see ResumeFollowers.
	Parking uint64
	Room    Room
	// Owed is what a ledger names as delivered and was not read yet.
	Owed []memory.Noted
	// Over is why the work on the lane must end; nil if it goes on.
	Over error
}

// Room is how many more parked deliveries a lane can take.
type Room struct {
	Due, Followers int
}

// Read is a page of the log.
type Read struct {
	Page *window.Page
	// Restart is the position before the page if it begins a new log; usually nil.
	Restart store.Position
}

func (o *Outcome) add(read store.Page, restart bool) {
	r := Read{Page: window.NewPage(read)}
	if restart {
		r.Restart = read.Start
	}
	if n := len(o.Read); n > 0 && len(read.Envelopes) == 0 && !restart && o.Read[n-1].Page.Empty() {
		o.Read[n-1].Page.Extend(read.End) // merges empty pages, of which a lane may read many
		return
	}
	o.Read = append(o.Read, r)
}

func (o *Outcome) last() *window.Page { return o.Read[len(o.Read)-1].Page }

// Take returns what has happened since the last Take. The caller reports with Written when it
// is written. reuse is a slice that the caller no longer needs.
func (l *Lane) Take(reuse []Settlement) Outcome {
	clear(reuse)
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	out := l.out
	l.out = Outcome{Passed: out.Passed, Settled: reuse[:0]}
	l.linger.stop()
	out.Parking = l.keys.Parking()
	out.Over = l.over
	out.Room = l.busy.room()
	out.Owed = l.owed.List()
	return out
}

// DueBusy returns the parked deliveries that the lane works on and that may be due.
func (l *Lane) DueBusy() []store.Ref {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	return l.busy.maybeDue()
}

// Written reports that settlements are written, and the ranges settled ahead of the position.
func (l *Lane) Written(settled []Settlement, ahead []store.OffsetRange) Room {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	rows, bytes := 0, 0
	for i := range settled {
		it := settled[i].item
		switch {
		case it.unit != nil:
			l.busy.removeUnit(it.unit)
		case !it.fromLog():
			l.busy.remove(it.ref())
		case it.rows.rebases == l.rebases:
			rows++
			it.rows.left--
			if it.rows.left == 0 {
				bytes += it.rows.bytes
			}
		}
	}
	l.occupy(-rows, -bytes)
	l.ahead, l.settledAhead = len(ahead), int(store.CountOffsets(ahead))
	if l.full {
		l.look()
	}
	return l.busy.room()
}

// Extend sets when the lease expires.
func (l *Lane) Extend(expires time.Time) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	l.expires = expires
}

// Continue lets deliveries begin again after Suspend.
func (l *Lane) Continue() {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	l.suspended = false
	l.letGo()
}

// letGo queues the held items, unless the lane is still suspended or shut.
func (l *Lane) letGo() {
	if l.holds() {
		return
	}
	held := l.held
	l.held = nil
	for _, it := range held {
		l.dispatcher.offer(it)
	}
}

// Suspend lets no delivery begin until Continue, since deliveries cannot be written.
func (l *Lane) Suspend() {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	l.suspend()
}

// IsSuspended reports whether the lane is suspended.
func (l *Lane) IsSuspended() bool {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	return l.suspended
}

func (l *Lane) suspend() {
	if l.suspended || l.over != nil {
		return
	}
	l.suspended = true
	l.hold()
}

// holds reports whether items are held instead of queued.
func (l *Lane) holds() bool { return l.suspended || l.shut }

// hold holds what is queued.
func (l *Lane) hold() {
	l.held = append(l.held, l.dispatcher.queue.Drop(func(it *item) bool { return it.lane == l })...)
}

// ResumeDue hands over parked deliveries that are due, and returns how many the lane took. A
// scheduled one whose key is held stays in the table.
func (l *Lane) ResumeDue(due []store.Parked) (taken int) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	for i := range due {
		if l.resume(&due[i]) {
			taken++
		}
	}
	return taken
}

// ResumeFollowers hands over the parked deliveries of a key, in log order, after Ask. parking
// is Outcome.Parking of the outcome that was written before the table was queried. again means
// that the table must be queried for the key again; free means that nothing holds the key back
// any more.
func (l *Lane) ResumeFollowers(key string, parked []store.Parked, parking uint64) (again, free bool) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	if !l.keys.Idle(key) {
		return false, false // the key has a head again, which asks when it ends
	}
	if len(parked) == 0 {
		free, again = l.keys.Free(key, parking)
		return again, free
	}
	next := 0
	for next < len(parked) && parked[next].State == store.StateBlocked &&
		!l.busy.has(store.RefOf(&parked[next].Envelope)) { // its outcome is not written yet: it may become a head, and otherwise asks itself
		next++
	}
	if next < len(parked) && parked[next].State != store.StateBlocked { // another head, which a person has moved to the front, or which waits for its hours
		l.resumeLoose(parked[next+1:])
	}
	for i := range parked[:next] {
		if !l.supersedeParked(&parked[i], &parked[next-1]) {
			l.resume(&parked[i])
		}
	}
	return false, false
}

// ResumeHeld reports which keys the parked table holds back. It gets all of them in order, in
// parts; last marks the last part. It returns the keys whose next delivery must be queried.
func (l *Lane) ResumeHeld(held []store.HeldKey, last bool) (ask []string) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	for _, h := range held {
		if l.keys.Held(h.Key, h.Head) {
			ask = append(ask, h.Key)
		}
	}
	if last {
		ask = append(ask, l.keys.Compared()...)
	}
	return ask
}

// settled returns the settlement of a parked delivery without a call of the sink: its publisher
// has cancelled it, or its failed hook is due again.
func settled(p *store.Parked) (s Settlement, ok bool) {
	switch p.State {
	case store.StateCancelled:
		return Settlement{}, true
	case store.StateSettling:
		return Settlement{Receipt: p.Receipt, Delivered: true}, true
	case store.StateDead:
		dead := *p
		dead.DueAt, dead.HookError, dead.HookFailures = time.Time{}, "", 0
		return Settlement{Parked: &dead}, true
	}
	return s, false
}

// resume gives a parked delivery its turn, or settles it. It returns false for one that the lane
// already works on, or that must stay in the table.
func (l *Lane) resume(p *store.Parked) (taken bool) {
	ref := store.RefOf(&p.Envelope)
	if l.busy.has(ref) {
		return false
	}
	d := l.dispatcher
	it := l.itemOf(p)
	outcome, isSettled := settled(p)
	if !isSettled && l.collectParked(it, p) {
		return true
	}
	turn := keyqueue.Go
	if it.Key != "" && !isSettled && !d.loosen(it) {
		turn = l.keys.Resume(it.Key, it, p.State != store.StateScheduled)
	}
	if turn == keyqueue.Refuse {
		return false
	}
	l.busy.add(ref, p)
	if isSettled {
		l.end(it, outcome)
		return true
	}
	if turn == keyqueue.Wait {
		if made, remembered := l.remembered(it); remembered {
			l.keys.Withdraw(it.Key)
			l.end(it, made)
			return true
		}
		d.behind()
		return true
	}
	if made, remembered := l.remembered(it); remembered {
		made.Ask = l.advance(it)
		l.end(it, made)
		return true
	}
	d.pending++
	d.offer(it)
	return true
}

// itemOf returns the item of a parked delivery.
func (l *Lane) itemOf(p *store.Parked) *item {
	it := &item{lane: l, state: p.State, firstParked: p.FirstParkedAt, hookFailures: p.HookFailures, past: pastOf(p)}
	it.Origin = fairqueue.FromParked
	it.Envelope, it.Sink, it.Attempt = &p.Envelope, l.dispatcher.name, p.Attempt
	it.destination = l.dispatcher.caller.Destination(&it.Delivery)
	return it
}

// Bounds of the parked deliveries that a lane works on.
const (
	maxDue       = 256  // retrying and scheduled ones
	maxFollowers = 2000 // blocked ones; with more, the table is not queried for further keys
	// maxBusyBytes is where a lane takes no more. The result of one query may exceed it.
	maxBusyBytes = 16 << 20
)

// busy are the parked deliveries that a lane works on.
type busy struct {
	rows   map[store.Ref]parkedRow
	due    int             // of these, retrying and scheduled ones
	bytes  int             // roughly their memory
	groups map[string]bool // groups of the collections that it works on
}

type parkedRow struct {
	state store.State
	bytes int
}

func (b *busy) has(ref store.Ref) bool {
	_, has := b.rows[ref]
	return has
}

func (b *busy) add(ref store.Ref, p *store.Parked) {
	row := parkedRow{p.State, len(p.Envelope.Payload) + envelopeBytes}
	b.rows[ref] = row
	b.bytes += row.bytes
	if row.state != store.StateBlocked {
		b.due++
	}
}

// remove removes a delivery, which is only in the table then. One that is not there is ignored.
func (b *busy) remove(ref store.Ref) {
	row, has := b.rows[ref]
	if !has {
		return
	}
	delete(b.rows, ref)
	b.bytes -= row.bytes
	if row.state != store.StateBlocked {
		b.due--
	}
}

// room returns how many more the lane can take.
func (b *busy) room() Room {
	if b.bytes >= maxBusyBytes {
		return Room{}
	}
	return Room{Due: max(0, maxDue-b.due), Followers: max(0, maxFollowers-(len(b.rows)-b.due))}
}

// maybeDue returns the retrying and scheduled ones.
func (b *busy) maybeDue() []store.Ref {
	refs := make([]store.Ref, 0, b.due)
	for ref, row := range b.rows {
		if row.state != store.StateBlocked {
			refs = append(refs, ref)
		}
	}
	return refs
}
