package forwarder

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// lane is one leased lane of a sink, from the lease to its end. A reader fills
// its window with pages; the courier's workers settle the items; a settler
// writes checkpoints and brings back what was parked. The files window.go,
// keys.go and settler.go hold one part of it each.
//
// Fields below the courier are guarded by the courier's mutex.
type lane struct {
	courier   *courier
	store     Store
	lease     store.Lease
	ttl       time.Duration
	log       *slog.Logger
	deadlines deadlines
	halt      bool // a dead delivery holds its key back

	closing   bool      // no further delivery begins
	over      bool      // nothing of this lane counts any more
	why       error     // it was given up
	expires   time.Time // when the lease ends unless it is renewed
	inFlight  int
	abandoned bool // deliveries in flight are waited for no longer

	window window
	keys   map[string]*keyState
	stale  bool               // what is believed of the keys is to be compared soon
	unmet  map[int64]string   // keys that wait for an offset to be met, by it
	out    outcome            // since the last checkpoint
	busy   map[store.Ref]bool // parked deliveries in the engine's hands
	// unsaved says that something was settled since the last checkpoint; dirty,
	// of capacity 1, tells the settler so.
	unsaved bool
	dirty   chan struct{}
	// nextDue is when the parked table should be asked; zero for never.
	nextDue time.Time
}

func newLane(c *courier, s Store, lease store.Lease, leased time.Time, ttl time.Duration, deliveries context.Context) *lane {
	l := &lane{
		courier: c, store: s, lease: lease, ttl: ttl,
		log:       c.log.With("lane", lease.Lane.Number),
		deadlines: deadlines{parent: deliveries},
		halt:      c.sink.OnDead == OnDeadHalt,
		expires:   leased.Add(ttl),
		keys:      make(map[string]*keyState),
		unmet:     make(map[int64]string),
		dirty:     make(chan struct{}, 1),
		busy:      make(map[store.Ref]bool),
		nextDue:   time.Now(),
	}
	l.window.init(lease.Settled)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.join(l)
	return l
}

// restoreTime bounds the one statement that may look through all that is parked.
const restoreTime = time.Minute

// restore loads which keys have parked deliveries, before anything is read.
func (l *lane) restore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restoreTime)
	defer cancel()
	blocked, err := l.store.BlockedKeys(ctx, l.lease.Lane, l.halt)
	if err != nil {
		return err
	}
	l.courier.mu.Lock()
	defer l.courier.mu.Unlock()
	for key, b := range blocked {
		k := &keyState{parked: b.Parked}
		l.keys[key] = k
		switch {
		case b.Head:
		case l.window.skip[b.First]:
			k.unmet = true
			l.unmet[b.First] = key
		default:
			l.out.released = append(l.out.released, key)
			l.mark()
		}
	}
	return nil
}

// met says that everything of the log up to an offset that was settled before this
// lease began is read. What is parked of a key from there on is free to go, behind
// what was read of it: that is parked now as well.
func (l *lane) met(offset int64) {
	if key, ok := l.unmet[offset]; ok {
		delete(l.unmet, offset)
		l.keys[key].unmet = false
		l.out.released = append(l.out.released, key)
		l.mark()
	}
}

// metAll says so of all: what was not met is gone from the log.
func (l *lane) metAll() {
	clear(l.window.skip)
	for offset := range l.unmet {
		l.met(offset)
	}
}

// horizon is how far lanes read.
type horizon interface {
	// latest returns the newest target, nil where there is none yet, and a channel
	// that is closed when there is a newer one; nil where there will be none.
	latest() (store.Target, <-chan struct{})
}

// level is the horizon of lanes that are to end at one place.
type level struct{ store.Target }

func (l level) latest() (store.Target, <-chan struct{}) { return l.Target, nil }

// read fills the window, page by page, until ctx is done, or the last target of
// the horizon is reached: that gives true.
func (l *lane) read(ctx context.Context, reader store.Reader, to horizon, failing *trouble) (reached bool) {
	for {
		target, newer := to.latest()
		for target != nil {
			limit, ok := l.waitForRoom(ctx)
			if !ok {
				return false
			}
			page, err := reader.Next(ctx, target, limit)
			if ctx.Err() != nil {
				return false
			}
			if errors.Is(err, store.ErrServerChanged) {
				l.courier.mu.Lock()
				defer l.courier.mu.Unlock()
				l.giveUp(err)
				return false
			}
			if err != nil {
				if !sleep(ctx, failing.met(err)) {
					return false
				}
				continue
			}
			failing.over()
			l.add(page, l.courier.passesBy(page))
			if page.CaughtUp {
				break
			}
			target, newer = to.latest()
		}
		if newer == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-newer:
		}
	}
}

// add takes a page into the window and hands over what may go. passesBy is nil, or
// says which rows are not for the sink.
func (l *lane) add(read store.Page, passesBy []bool) {
	l.courier.mu.Lock()
	defer l.courier.mu.Unlock()
	if read.Rebased != "" {
		l.log.Warn("the log is read anew from its oldest row", "reason", read.Rebased)
		l.window.begin(read.Start)
		l.metAll()
	}
	if l.window.position == nil {
		l.window.position = read.Start
	}
	p := l.window.add(read)
	now := time.Now()
	for i := range p.items {
		it := &p.items[i]
		it.Envelope = &p.Envelopes[i]
		it.Sink = l.courier.name
		it.lane, it.page, it.index = l, p, i
		switch {
		case l.window.takeSkip(it.Offset):
			p.settled[i] = true
			l.met(it.Offset)
			l.mark()
		case passesBy != nil && passesBy[i]:
			l.courier.stats.PassedBy++
			l.leave(it)
		case it.DeliverAt.After(now):
			l.park(it, store.StateScheduled, it.DeliverAt, "")
		default:
			l.enqueue(it)
		}
	}
	if read.CaughtUp {
		l.metAll()
	}
}

// delivered settles an item that the sink has taken.
func (l *lane) delivered(it *item, receipt notification.Receipt) {
	if l.courier.hooks.Delivered != nil || l.store.KeepsReceipts() {
		l.out.delivered = append(l.out.delivered, Delivered{Delivery: &it.Delivery, Receipt: receipt})
	}
	l.settled(it)
}

// settled settles an item of which nothing is to be done any more.
func (l *lane) settled(it *item) {
	if it.page == nil {
		l.out.unpark = append(l.out.unpark, store.RefOf(it.Envelope))
		l.out.unparked = append(l.out.unparked, it.Key)
	}
	l.leave(it)
	l.advanceKey(it)
}

// failed parks an item for its next attempt.
func (l *lane) failed(it *item, err error, pause time.Duration) {
	l.log.Warn("delivery failed, retrying", "delivery", &it.Delivery, "error", err, "pause", pause.Round(time.Millisecond))
	l.park(it, store.StateRetrying, time.Now().Add(pause), err.Error())
	l.holdKey(it)
}

// died parks an item for good.
func (l *lane) died(it *item, err error) {
	l.log.Error("delivery is dead", "delivery", &it.Delivery, "error", err)
	l.park(it, store.StateDead, time.Time{}, err.Error())
	if l.halt {
		l.holdKey(it)
	} else {
		l.advanceKey(it)
	}
}

// maxErrorText bounds what of an error is kept with a parked delivery, in bytes.
const maxErrorText = 2000

// park settles an item by a row in the parked table.
func (l *lane) park(it *item, state store.State, due time.Time, reason string) {
	l.out.park = append(l.out.park, store.Parked{
		Envelope:      *it.Envelope,
		State:         state,
		Attempt:       it.Attempt,
		DueAt:         due,
		LastError:     textOf(reason, maxErrorText),
		FirstParkedAt: time.Now(),
	})
	if !due.IsZero() {
		l.dueAt(due)
	}
	l.leave(it)
}

// dueAt has the parked table asked at a time, unless it is earlier.
func (l *lane) dueAt(due time.Time) {
	if l.nextDue.IsZero() || due.Before(l.nextDue) {
		l.nextDue = due
	}
}

// take takes parked deliveries into the engine's hands and returns how many it
// did not have already and could take. The mutex is held.
func (l *lane) take(parked []store.Parked) (taken int) {
	for i := range parked {
		p := &parked[i]
		if l.busy[store.RefOf(&p.Envelope)] {
			continue
		}
		it := &item{lane: l, holds: p.State != store.StateScheduled}
		it.Envelope, it.Sink, it.Attempt = &p.Envelope, l.courier.name, p.Attempt
		it.uncounted = p.State == store.StateRetrying && p.Attempt == 0
		if l.resume(it) {
			l.busy[store.RefOf(&p.Envelope)] = true
			taken++
		}
	}
	return taken
}

// ends says that no delivery may begin: the lane is being closed, or its lease has
// run out, so that another forwarder may have it already. The mutex is held.
func (l *lane) ends(now time.Time) bool {
	if now.After(l.expires) {
		l.giveUp(errLeaseExpired)
	}
	return l.over || l.closing
}

// giveUp has the settler end the work on the lane, with nothing written. The mutex
// is held.
func (l *lane) giveUp(why error) {
	if !l.over {
		l.over, l.why = true, why
		l.mark()
	}
}

// leave ends an item's turn: its outcome is in l.out.
func (l *lane) leave(it *item) {
	if it.page != nil {
		it.page.settled[it.index] = true
	}
	l.mark()
}

// mark tells the settler that there is something to write.
func (l *lane) mark() {
	l.unsaved = true
	select {
	case l.dirty <- struct{}{}:
	default:
	}
}

// close lets no further delivery begin and waits for those in flight, which are
// cut off after a time.
func (l *lane) close(timeout time.Duration, cutOff context.CancelFunc) {
	l.courier.mu.Lock()
	defer l.courier.mu.Unlock()
	l.closing = true
	late := time.AfterFunc(timeout, cutOff)
	defer late.Stop()
	l.drain(l.deadlines.parent)
}

// drop makes everything of the lane void, cuts its deliveries off and waits for
// them: a sink that does not heed its context is given up only once stop is done,
// so that this process has no key in flight twice.
func (l *lane) drop(stop context.Context, cutOff context.CancelFunc) {
	l.courier.mu.Lock()
	defer l.courier.mu.Unlock()
	l.over = true
	cutOff()
	l.drain(stop)
}

// drain waits until nothing of the lane is in the sink's hands; once cut is done
// only for abandonAfter longer. The mutex is held.
func (l *lane) drain(cut context.Context) {
	c := l.courier
	giveUp := context.AfterFunc(cut, func() {
		time.AfterFunc(abandonAfter, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			l.abandoned = true
			c.drained.Broadcast()
		})
	})
	defer giveUp()
	for l.inFlight > 0 && !l.abandoned {
		c.drained.Wait()
	}
	if l.inFlight > 0 {
		l.log.Warn("deliveries in flight were abandoned: the sink does not heed its context", "count", l.inFlight)
	}
}

// ended takes note that deliveries of the lane are in the sink's hands no longer. The
// mutex is held.
func (l *lane) ended(n int) {
	l.inFlight -= n
	if l.inFlight == 0 {
		l.courier.drained.Broadcast()
	}
}

// starve has the reader look for work if the window is full. The mutex is held.
func (l *lane) starve() {
	if l.window.full {
		l.window.look()
	}
}

// void says that what is still to come of the lane counts no more.
func (l *lane) void() {
	c := l.courier
	c.mu.Lock()
	defer c.mu.Unlock()
	l.over = true
	c.part(l)
	c.pending -= c.turns.drop(l)
	for _, k := range l.keys {
		for k.pop() != nil {
			c.pending--
		}
	}
}
