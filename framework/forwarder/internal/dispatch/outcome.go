package dispatch

import (
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/fairqueue"
	"github.com/waybill-go/waybill/framework/forwarder/internal/keyqueue"
	"github.com/waybill-go/waybill/framework/forwarder/internal/memory"
	"github.com/waybill-go/waybill/framework/forwarder/internal/window"
	"github.com/waybill-go/waybill/framework/store"
)

// Outcome is what happened to a lane since the last Take.
type Outcome struct {
	// Read are pages of the log, in order.
	Read []Read
	// Settled are deliveries whose turn has ended, in order.
	Settled []Settlement
	// Passed says that all that was settled before the lease began has been read. Until
	// then no key is asked for: what comes first of it may be in the log.
	Passed bool
	// Parking numbers what is parked up to here; see ResumeFollowers.
	Parking uint64
	Room    Room
	// Owed is what a ledger names as delivered, and was not met yet.
	Owed []memory.Noted
	// Over is why the work on the lane has to end; nil if it goes on.
	Over error
}

// Room is how many parked deliveries a lane can take.
type Room struct {
	Due, Followers int
}

// Read is a page of the log.
type Read struct {
	Page *window.Page
	// Restart is the place before the page if it begins another log; nil as a rule.
	Restart store.Position
}

// Bounds of the parked deliveries in a lane's hands.
const (
	maxDue       = 256  // retrying and scheduled ones
	maxFollowers = 2000 // blocked ones, beyond which no key is asked for
	// maxBusyBytes is where no more are taken. What one question gives may exceed it.
	maxBusyBytes = 16 << 20
)

// parkedRow is a parked delivery in a lane's hands.
type parkedRow struct {
	state store.State
	bytes int
}

func (o *Outcome) add(read store.Page, restart bool) {
	r := Read{Page: window.NewPage(read)}
	if restart {
		r.Restart = read.Start
	}
	if n := len(o.Read); n > 0 && len(read.Envelopes) == 0 && !restart && o.Read[n-1].Page.Empty() {
		o.Read[n-1].Page.Extend(read.End) // a lane without rows reads page after page
		return
	}
	o.Read = append(o.Read, r)
}

func (o *Outcome) last() *window.Page { return o.Read[len(o.Read)-1].Page }

// Dirty signals that there is something to take.
func (l *Lane) Dirty() <-chan struct{} { return l.dirty }

// Plenty signals that so much is to be taken that a checkpoint should not wait.
func (l *Lane) Plenty() <-chan struct{} { return l.plenty }

// plenty is how many settlements are worth a checkpoint at once.
const plenty = 2000

// Take returns what happened since the last Take. The caller keeps it, and says with
// Written when it is written.
// reuse is a slice that is not used any more.
func (l *Lane) Take(reuse []Settlement) Outcome {
	clear(reuse)
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	out := l.out
	l.out = Outcome{Passed: out.Passed, Settled: reuse[:0]}
	l.lingers = false
	l.linger.Stop()
	out.Parking = l.keys.Parking()
	out.Over = l.over
	out.Room = l.parkedRoom()
	out.Owed = l.owed.List()
	return out
}

func (l *Lane) parkedRoom() Room {
	if l.busyBytes >= maxBusyBytes {
		return Room{}
	}
	return Room{Due: max(0, maxDue-l.due), Followers: max(0, maxFollowers-(len(l.busy)-l.due))}
}

// DueBusy are the parked deliveries in the lane's hands that may be due.
func (l *Lane) DueBusy() []store.Ref {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	refs := make([]store.Ref, 0, l.due)
	for ref, row := range l.busy {
		if row.state != store.StateBlocked {
			refs = append(refs, ref)
		}
	}
	return refs
}

// Written says that settlements are written, and what is settled ahead of the position.
func (l *Lane) Written(settled []Settlement, ahead []store.OffsetRange) Room {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	rows, bytes := 0, 0
	for i := range settled {
		it := settled[i].item
		switch {
		case !it.fromLog():
			l.letGo(it.ref())
		case it.rows.log == l.number:
			rows++
			it.rows.left--
			if it.rows.left == 0 {
				bytes += it.rows.bytes
			}
		}
	}
	l.taken(-rows, -bytes)
	l.ahead, l.settledAhead = len(ahead), int(store.CountOffsets(ahead))
	if l.full {
		l.look()
	}
	return l.parkedRoom()
}

// Extend says that the lease lasts until a time.
func (l *Lane) Extend(expires time.Time) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	l.expires = expires
}

// Continue lets deliveries begin again after Suspend.
func (l *Lane) Continue() {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	if !l.suspended {
		return
	}
	l.suspended = false
	aside := l.aside
	l.aside = nil
	for _, it := range aside {
		l.dispatcher.offer(it)
	}
}

// Suspend lets no delivery begin until Continue: what is delivered cannot be written.
// It returns false if that is so already.
func (l *Lane) Suspend() (began bool) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	return l.suspend()
}

// IsSuspended says whether no delivery begins.
func (l *Lane) IsSuspended() bool {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	return l.suspended
}

func (l *Lane) suspend() (began bool) {
	if l.suspended || l.over != nil {
		return false
	}
	l.suspended = true
	l.aside = append(l.aside, l.dispatcher.queue.Drop(func(it *item) bool { return it.lane == l })...)
	return true
}

// ResumeDue hands over parked deliveries that are due, and returns how many of them the
// lane took. A scheduled one whose key is held is left in the table.
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

// ResumeFollowers hands over what the parked table has of a key that was to be asked
// for, in the order of the log. parking is that of the Outcome that was written before
// the table was asked. again says that the table is to be asked for the key again; free
// says that nothing holds the key back any more.
func (l *Lane) ResumeFollowers(key string, parked []store.Parked, parking uint64) (again, free bool) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	if !l.keys.Idle(key) {
		return false, false // its head asks when it is through
	}
	if len(parked) == 0 {
		free, again = l.keys.Free(key, parking)
		return again, free
	}
	for i := range parked {
		if parked[i].State != store.StateBlocked {
			break // another head, which a person has put in front
		}
		if _, has := l.busy[store.RefOf(&parked[i].Envelope)]; has {
			break // what became of it is not written: it may be a head by now, and asks by itself if not
		}
		l.resume(&parked[i])
	}
	return false, false
}

// ResumeHeld says which keys the parked table holds back, as a part of all of them in
// order; with last, the last part. It returns those of which the next one is to be
// asked for.
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

// settled is what became of a parked delivery that is not to be made: its publisher has
// cancelled it, or a hook has failed for it, and is called again.
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

// resume gives a parked delivery its turn, or settles it. One that the lane has already is
// left alone.
func (l *Lane) resume(p *store.Parked) (taken bool) {
	ref := store.RefOf(&p.Envelope)
	if _, has := l.busy[ref]; has {
		return false
	}
	d := l.dispatcher
	it := &item{lane: l, state: p.State, firstParked: p.FirstParkedAt, hookFailures: p.HookFailures}
	it.Origin = fairqueue.FromParked
	it.Envelope, it.Sink, it.Attempt = &p.Envelope, d.name, p.Attempt
	it.destination = d.caller.Destination(&it.Delivery)
	outcome, isSettled := settled(p)
	turn := keyqueue.Go
	if it.Key != "" && !isSettled {
		turn = l.keys.Resume(it.Key, it, p.State != store.StateScheduled)
	}
	if turn == keyqueue.Refuse {
		return false
	}
	row := parkedRow{p.State, len(p.Envelope.Payload) + envelopeBytes}
	l.busy[ref] = row
	l.busyBytes += row.bytes
	if p.State != store.StateBlocked {
		l.due++
	}
	if isSettled {
		l.settle(it, outcome)
		return true
	}
	if turn == keyqueue.Wait {
		if made, remembered := l.remembered(it); remembered {
			l.keys.Withdraw(it.Key)
			l.settle(it, made)
			return true
		}
		d.behind()
		return true
	}
	if made, remembered := l.remembered(it); remembered {
		made.Ask = l.advance(it)
		l.settle(it, made)
		return true
	}
	d.pending++
	d.offer(it)
	return true
}
