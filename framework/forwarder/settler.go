package forwarder

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	blockedRows = 100  // blocked deliveries of one key brought back at once
	dueRows     = 256  // due deliveries in the engine's hands at once
	parkedRows  = 2000 // parked deliveries in the engine's hands, beyond which no key is released

	// compareEvery is how long it may take until the engine notices what a person
	// has done to parked deliveries by SQL of their own. What store.Operator did
	// is noticed with the keeper's next look, by the lane's revision.
	compareEvery = 30 * time.Second
	// compareAgain is how soon keys are compared again that were under way when a
	// person changed what is parked of them.
	compareAgain = 100 * time.Millisecond
)

// restOfCheckpoints adds to what a crash repeats, and to nothing that is waited for.
var restOfCheckpoints = pace.Rest{Times: 4, Most: 10 * time.Millisecond}

// outcome is what happened to a lane's deliveries since the last checkpoint.
type outcome struct {
	park      []store.Parked
	unpark    []store.Ref
	unparked  []string // their keys
	delivered []Delivered
	released  []string // keys whose blocked deliveries are free to go
}

// settler writes a lane's checkpoints and brings back what was parked. There is
// no timer for checkpoints: one is written as soon as something is settled, and the
// next one a rest later that follows how long it took, so under load each carries
// what was settled meanwhile.
//
// All access to the parked table is in this one goroutine, always behind a
// checkpoint: what it reads back is never older than what it has written.
type settler struct {
	lane     *lane
	failing  *trouble
	renewed  time.Time // when the checkpoint began that renewed the lease last
	compared time.Time // when the keys were compared with the parked table last
	number   int64     // of the last checkpoint

	revised <-chan struct{} // tells that it is to be compared now; nil: never

	asking *trouble  // with reading the parked table
	askAt  time.Time // not before that
}

func newSettler(l *lane, leased time.Time, revised <-chan struct{}) *settler {
	return &settler{
		lane:     l,
		failing:  newTrouble(l.log, "settling"),
		asking:   newTrouble(l.log, "reading parked deliveries"),
		renewed:  leased,
		compared: leased,
		revised:  revised,
	}
}

// run settles until stop is done, then writes the last checkpoint and returns
// nil; or until the lease is lost, or db is done. db bounds all use of the
// database.
func (s *settler) run(stop, db context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-stop.Done():
			_, err := s.checkpoint(db)
			return err
		case <-s.lane.dirty:
		case <-s.revised:
			s.compared = time.Time{}
		case <-timer.C:
		}
		began := time.Now()
		released, err := s.checkpoint(db)
		if err != nil {
			return err
		}
		s.bringBack(db, released)
		sleep(stop, restOfCheckpoints.After(time.Since(began)))
		timer.Reset(s.untilNext())
	}
}

// untilNext is how long the settler may sleep if nothing is settled.
func (s *settler) untilNext() time.Duration {
	l := s.lane
	l.courier.mu.Lock()
	defer l.courier.mu.Unlock()
	ask := s.compared.Add(l.comparePause())
	if !l.nextDue.IsZero() && l.nextDue.Before(ask) && len(l.busy) <= dueRows/2 {
		ask = l.nextDue
	}
	if l.hasReleased() {
		ask = time.Now()
	}
	if ask.Before(s.askAt) {
		ask = s.askAt
	}
	next := earlier(ask, s.renewed.Add(l.ttl/3)) // the lease does not wait for the parked table
	return max(0, time.Until(next))
}

// checkpoint writes what was settled, if there is something or the lease wants
// renewing, and returns the keys that it released. It comes back only when it is
// written, the lease is lost or ctx is done.
func (s *settler) checkpoint(ctx context.Context) (released []string, err error) {
	l := s.lane
	l.courier.mu.Lock()
	l.window.advance()
	if l.over {
		l.courier.mu.Unlock()
		return nil, l.why
	}
	asking := l.hasReleased() && !time.Now().Before(s.askAt)
	if !l.unsaved && !asking && time.Since(s.renewed) < l.ttl/3 {
		l.courier.mu.Unlock()
		return nil, nil
	}
	out := l.out
	l.out, l.unsaved = outcome{}, false
	s.number++
	c := store.Checkpoint{Lease: l.lease, TTL: l.ttl, Number: s.number, Position: l.window.position, Park: out.park, Unpark: out.unpark}
	if c.Position != nil {
		c.Settled = l.window.settledAhead()
	}
	l.courier.mu.Unlock()

	if l.store.KeepsReceipts() {
		c.Receipts = receiptsOf(out.delivered)
	}
	c.InTx = l.courier.hooks.inTx(l.courier.name, &out, l.ttl/3)
	if err := s.write(ctx, c); err != nil {
		return nil, err
	}

	l.courier.mu.Lock()
	defer l.courier.mu.Unlock()
	for _, ref := range out.unpark {
		delete(l.busy, ref)
	}
	for i := range out.park {
		delete(l.busy, store.RefOf(&out.park[i].Envelope))
	}
	return out.released, nil
}

// write repeats a checkpoint until it is through. One whose outcome is unknown
// is repeated like one that failed: it changes nothing more.
func (s *settler) write(ctx context.Context, c store.Checkpoint) error {
	for {
		err := s.writeOnce(ctx, c)
		if err == nil {
			s.failing.over()
			return nil
		}
		if !lost(err) && ctx.Err() == nil {
			// The lease is not to be lost to what this checkpoint carries.
			if renewErr := s.renew(ctx); lost(renewErr) {
				return renewErr
			}
		}
		switch {
		case lost(err):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("last checkpoint: %w", err)
		case time.Since(s.renewed) > s.lane.ttl:
			return fmt.Errorf("%w: %w", errLeaseExpired, err)
		}
		if !sleep(ctx, s.failing.met(err)) {
			return fmt.Errorf("last checkpoint: %w", err)
		}
	}
}

// writeOnce gives up after the time of a lease: then it is somebody else's turn to
// write.
func (s *settler) writeOnce(ctx context.Context, c store.Checkpoint) error {
	ctx, cancel := context.WithTimeout(ctx, c.TTL)
	defer cancel()
	began := time.Now()
	if err := s.lane.store.Checkpoint(ctx, c); err != nil {
		return err
	}
	s.renewed = began
	s.lane.courier.mu.Lock()
	defer s.lane.courier.mu.Unlock()
	s.lane.expires = began.Add(c.TTL)
	return nil
}

// renew renews the lease and writes nothing else.
func (s *settler) renew(ctx context.Context) error {
	return s.writeOnce(ctx, store.Checkpoint{Lease: s.lane.lease, TTL: s.lane.ttl})
}

func receiptsOf(delivered []Delivered) []store.Receipt {
	now := time.Now()
	receipts := make([]store.Receipt, len(delivered))
	for i, d := range delivered {
		receipts[i] = store.Receipt{Offset: d.Offset, ID: d.ID, Receipt: notification.Receipt(textOf(string(d.Receipt), maxErrorText)), Attempt: d.Attempt, DeliveredAt: now}
	}
	return receipts
}

// bringBack gives parked deliveries their turn: what has fallen due, and the
// followers of released keys. Where the table cannot be read it leaves that for
// later: what is being delivered goes on.
func (s *settler) bringBack(ctx context.Context, released []string) {
	if time.Now().Before(s.askAt) {
		s.release(released)
		return
	}
	// An answer that does not come is not to cost the lease.
	ctx, cancel := context.WithTimeout(ctx, s.lane.ttl/2)
	defer cancel()
	err := s.compare(ctx)
	if err == nil {
		err = s.due(ctx)
	}
	for len(released) > 0 && err == nil {
		if err = s.followers(ctx, released[0]); err == nil {
			released = released[1:]
		}
		if time.Since(s.renewed) > s.lane.ttl/3 || s.lane.crowded() {
			break // the lease goes first, and memory
		}
	}
	s.release(released)
	if err != nil {
		s.askAt = time.Now().Add(s.asking.met(err))
		return
	}
	s.asking.over()
}

// release leaves keys for the next turn.
func (s *settler) release(keys []string) {
	l := s.lane
	l.courier.mu.Lock()
	defer l.courier.mu.Unlock()
	l.out.released = append(l.out.released, keys...)
}

// hasReleased says whether there are keys to bring back the followers of. The mutex
// is held.
func (l *lane) hasReleased() bool { return len(l.out.released) > 0 && len(l.busy) <= parkedRows }

// crowded says whether enough parked deliveries are in the engine's hands.
func (l *lane) crowded() bool {
	l.courier.mu.Lock()
	defer l.courier.mu.Unlock()
	return len(l.busy) > parkedRows
}

// compare corrects now and then what the engine believes of its keys by what the
// parked table says: a person may have put deliveries back, or taken some away.
func (s *settler) compare(ctx context.Context) error {
	l := s.lane
	l.courier.mu.Lock()
	pause := l.comparePause()
	l.courier.mu.Unlock()
	if time.Since(s.compared) < pause {
		return nil
	}
	blocked, err := l.store.BlockedKeys(ctx, l.lease.Lane, l.halt)
	if err != nil {
		return err
	}
	l.courier.mu.Lock()
	defer l.courier.mu.Unlock()
	l.stale = false
	unsettled := make(map[string]bool) // the table does not say the last word on these
	for i := range l.out.park {
		unsettled[l.out.park[i].Envelope.Key] = true
	}
	going := make(map[string]int) // what is still in the table of these
	for _, key := range l.out.unparked {
		unsettled[key] = true
		going[key]++
	}
	for key, b := range blocked {
		k := l.keys[key]
		if k == nil {
			k = &keyState{}
		}
		more := b.Parked-going[key] > k.parked
		switch {
		case k.active || k.taken > 0 || k.unmet:
			k.stale = more // compared once nothing of it is under way
			continue
		case unsettled[key]:
			l.stale = l.stale || more
			continue
		}
		k.parked, k.stale = b.Parked, false
		l.keys[key] = k
		if !b.Head {
			l.out.released = append(l.out.released, key)
			l.mark()
		}
	}
	for key, k := range l.keys {
		if _, still := blocked[key]; !still && !unsettled[key] && !k.active && k.taken == 0 && !k.unmet {
			l.forget(key, true)
		}
	}
	l.dueAt(time.Now())
	s.compared = time.Now()
	return nil
}

// comparePause is how long the settler waits between two comparisons. The mutex is
// held.
func (l *lane) comparePause() time.Duration {
	if l.stale {
		return compareAgain
	}
	return compareEvery
}

// followers brings back the first blocked deliveries of a key, unless another head
// holds them back: one that a person put back was in front of it.
func (s *settler) followers(ctx context.Context, key string) error {
	l := s.lane
	parked, err := l.store.Blocked(ctx, l.lease.Lane, key, l.halt, blockedRows)
	if err != nil {
		return err
	}
	l.courier.mu.Lock()
	defer l.courier.mu.Unlock()
	if len(parked) == 0 {
		l.noFollowers(key)
		return nil
	}
	isHead := func(p store.Parked) bool { return p.State != store.StateBlocked }
	if head := slices.IndexFunc(parked, isHead); head >= 0 {
		parked = parked[:head]
	}
	l.take(parked)
	return nil
}

// due brings back what has fallen due, as long as not too much of it is under
// way already.
func (s *settler) due(ctx context.Context) error {
	l := s.lane
	now := time.Now()
	l.courier.mu.Lock()
	if l.nextDue.IsZero() || l.nextDue.After(now) || len(l.busy) > dueRows/2 {
		l.courier.mu.Unlock()
		return nil
	}
	q := store.DueQuery{Lane: l.lease.Lane, Now: now, Limit: dueRows, Halt: l.halt}
	for ref := range l.busy {
		q.Except = append(q.Except, ref)
	}
	l.nextDue = time.Time{}     // whatever is parked from here on sets it again
	for i := range l.out.park { // and so does what the table does not have yet
		if due := l.out.park[i].DueAt; !due.IsZero() {
			l.dueAt(due)
		}
	}
	l.courier.mu.Unlock()

	parked, next, err := l.store.Due(ctx, q)

	l.courier.mu.Lock()
	defer l.courier.mu.Unlock()
	taken := l.take(parked)
	switch {
	case err != nil || taken > 0:
		l.dueAt(now) // there may be more
	case !next.IsZero():
		l.dueAt(next)
	}
	return err
}

// textOf cuts a text to at most limit bytes of valid UTF-8 without NUL bytes, as
// every database takes it.
func textOf(text string, limit int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
