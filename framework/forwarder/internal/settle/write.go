package settle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	// maxHooked is the maximum number of settlements in a checkpoint with hooks.
	maxHooked = 1000
	// manyRefused is after how many failures of hooks in a row each further failure costs a
	// pause: then the hook or the database is the cause, not the deliveries.
	manyRefused = 10
	// leastSilence is the least time after which a checkpoint counts as late.
	leastSilence = 250 * time.Millisecond
)

// write writes one checkpoint: the whole queue, or as much of it as hooks allow. It repeats the
// checkpoint until it succeeds. A checkpoint with an unknown outcome is repeated too: if it was
// written, the repeat changes nothing more.
func (c *Checkpointer) write(ctx context.Context) error {
	n := len(c.queue)
	if c.Hooks.Any() {
		n = min(n, c.hookSize)
	}
	c.number++
	mark(c.queue[:n])
	if c.Ledger != nil {
		if err := c.commitRound(ctx, c.queue[:n]); err != nil {
			return err
		}
	}
	unclear := false // whether it is written already
	for {
		err := c.attempt(ctx, n, unclear)
		if err == nil {
			c.wrote(n)
			return nil
		}
		c.Lane.Suspend()
		if err := c.keepLease(ctx, err); err != nil {
			return err
		}
		if isOfHook(err) {
			if n = c.isolate(ctx, n, err); n == 0 {
				return err
			}
			continue
		}
		unclear = true
		event.Tell(c.Observer, &event.DatabaseFailure{Op: event.OpCheckpoint, Err: err})
		if !pace.Sleep(ctx, c.failing.Met(err)) {
			return err
		}
	}
}

// attempt tries once to write the first n settlements of the queue. unclear means that they may be
// written already.
func (c *Checkpointer) attempt(ctx context.Context, n int, unclear bool) error {
	k := c.compose(c.queue[:n])
	written := c.suspendLate(&k)
	err := c.writeOnce(ctx, k, unclear)
	written()
	if err == nil && unclear {
		err = c.Renew(ctx)
	}
	if err != nil {
		return err
	}
	if k.InTx != nil {
		c.refused = 0
	}
	c.failing.Over()
	return nil
}

// keepLease renews the lease after a failed checkpoint, since a problem with its content must not cost
// the lease. It returns an error if the lease is over, or ctx is done.
func (c *Checkpointer) keepLease(ctx context.Context, failed error) error {
	if Lost(failed) || ctx.Err() != nil {
		return failed
	}
	switch err := c.Renew(ctx); {
	case Lost(err):
		return err
	case ctx.Err() != nil:
		return failed
	case time.Since(c.renewed) > c.TTL:
		return fmt.Errorf("%w: %w", dispatch.ErrLeaseExpired, failed)
	}
	return nil
}

// isOfHook reports whether a checkpoint failed because of a hook.
func isOfHook(err error) bool {
	return errors.As(err, new(*hookError)) || errors.Is(err, store.ErrSpoiled)
}

// isolate searches for the settlement for which a hook fails, among the first n of the queue. It
// returns how many the next checkpoint must write, so that those that succeed are settled. A
// single one that fails is held back, and then written without calling the hook. 0: ctx is done.
func (c *Checkpointer) isolate(ctx context.Context, n int, failed error) int {
	if n > 1 {
		unmark(c.queue[n/2 : n])
		c.hookSize = n / 2
		return n / 2
	}
	c.refused++
	if c.refused > manyRefused && !pace.Sleep(ctx, maxPause) {
		return 0
	}
	s := &c.queue[0]
	next := "with the next attempt"
	pause, failed := s.HoldBack(failed)
	if pause > 0 {
		next = "in " + pause.Round(time.Millisecond).String()
	}
	c.log.Warn("a hook failed", "type", s.Delivery().Type, "id", s.Delivery().ID, "error", failed, "called again", next)
	return n
}

func mark(settled []dispatch.Settlement) {
	for i := range settled {
		if settled[i].FromLog() {
			settled[i].MarkRow()
		}
	}
}

func unmark(settled []dispatch.Settlement) {
	for i := range settled {
		if settled[i].FromLog() {
			settled[i].UnmarkRow()
		}
	}
}

// compose returns the checkpoint for settlements. Their rows are already settled in the window.
func (c *Checkpointer) compose(settled []dispatch.Settlement) store.Checkpoint {
	k := store.Checkpoint{Lease: c.Lease, TTL: c.TTL, Number: c.number, Position: c.window.Position()}
	switch {
	case k.Position == nil:
	case c.passed && len(settled) == len(c.queue): // the window has everything settled before the lease
		k.Settled = c.window.AheadRead()
	default:
		k.Settled = c.window.Ahead()
	}
	receipts, now := c.Store.KeepsReceipts(), time.Now()
	for i := range settled {
		if ended, ok := settled[i].Collected(); ok {
			k.Collected = append(k.Collected, ended)
		}
	}
	for s := range each(settled) {
		switch {
		case s.IsMember():
			k.Collect = append(k.Collect, *s.Parked)
			if !s.FromLog() {
				k.Unpark = append(k.Unpark, store.RefOf(s.Delivery().Envelope))
			}
		case s.Parked != nil && s.Again():
			k.Hooked = append(k.Hooked, *s.Parked)
		case s.Parked != nil:
			k.Park = append(k.Park, *s.Parked)
			if s.Released {
				k.Released = append(k.Released, store.RefOf(s.Delivery().Envelope))
			}
			if s.Replaces {
				k.Unpark = append(k.Unpark, store.RefOf(s.Delivery().Envelope))
			}
		case !s.FromLog():
			k.Unpark = append(k.Unpark, store.RefOf(s.Delivery().Envelope))
		}
		if !receipts || s.Parked != nil || !s.Delivered && s.Superseded == "" {
			continue
		}
		receipt := notification.Receipt(store.CutText(string(s.Receipt), maxReceipt))
		if s.Superseded != "" {
			receipt = notification.SupersededBy(s.Superseded)
		}
		k.Receipts = append(k.Receipts, store.Receipt{
			Offset: s.Delivery().Offset, ID: s.Delivery().ID, Attempt: s.Delivery().Attempt, DeliveredAt: now, Receipt: receipt,
		})
	}
	k.CollectTerms = c.terms()
	k.InTx = runHooks(c.Hooks, settled, c.TTL/3)
	return k
}

// maxReceipt bounds an archived receipt, in bytes.
const maxReceipt = 2000

// wrote records that the first n settlements of the queue are written.
func (c *Checkpointer) wrote(n int) {
	c.window.Advance()
	c.written, c.moved = c.renewed, false
	settled := c.queue[:n]
	for i := range settled {
		s := &settled[i]
		if s.Parked != nil && !s.Parked.DueAt.IsZero() {
			c.dueAt(s.Parked.DueAt)
		}
		if !s.FromLog() {
			c.dueAt(time.Now()) // the lane has room for another parked delivery
		}
		if s.Ask {
			c.ask.add(s.Delivery().Key)
		}
		if _, ended := s.Collected(); ended {
			c.closeBy(time.Now()) // the next one of the group may be due
		} else if s.IsMember() {
			c.closeBy(time.Now().Add(closePause))
		}
	}
	c.linger()
	c.room = c.Lane.Written(settled, c.window.Ahead())
	c.silent = false
	c.Lane.Continue()
	c.observe(settled)
	c.queue = c.queue[n:]
	if c.passed && len(c.queue) == 0 {
		c.window.Passed()
	}
	if len(c.queue) == 0 {
		c.reuse = c.taken
	}
	if c.hookSize < maxHooked && n == c.hookSize {
		c.hookSize *= 2
	}
}

// suspendLate suspends the lane if a checkpoint takes long; call written when it has ended. The
// time of hooks does not count.
func (c *Checkpointer) suspendLate(k *store.Checkpoint) (written func()) {
	var mu sync.Mutex // keeps the timer from suspending the lane after written
	over := false
	patience := max(leastSilence, 4*c.took)
	silent := time.AfterFunc(patience, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			c.Lane.Suspend()
		}
	})
	if inTx := k.InTx; inTx != nil {
		k.InTx = func(ctx context.Context, tx *sql.Tx) error {
			silent.Stop()
			defer silent.Reset(patience)
			return inTx(ctx, tx)
		}
	}
	return func() {
		silent.Stop()
		mu.Lock()
		defer mu.Unlock()
		over = true
	}
}

// suspendSilent suspends the lane if the database no longer answers; call answered when it has.
// If reading takes long, it renews the lease to find out.
func (c *Checkpointer) suspendSilent(ctx context.Context) (answered func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	late := time.AfterFunc(max(leastSilence, 4*c.took), func() {
		defer close(ended)
		renewal := c.renewal()
		written := c.suspendLate(&renewal)
		defer written()
		if err := c.Store.Checkpoint(ctx, renewal); err != nil && ctx.Err() == nil {
			c.Lane.Suspend()
		}
	})
	return func() {
		cancel()
		if !late.Stop() {
			<-ended
			c.silent = c.Lane.IsSuspended()
		}
	}
}

// writeOnce tries a checkpoint once. It gives up after the time of a lease, when another
// forwarder may have the lane. unclear means that it may be written already. Then its success does
// not show that the lease is renewed.
func (c *Checkpointer) writeOnce(ctx context.Context, k store.Checkpoint, unclear bool) error {
	ctx, cancel := context.WithTimeout(ctx, k.TTL)
	defer cancel()
	began := time.Now()
	if err := c.Store.Checkpoint(ctx, k); err != nil {
		return err
	}
	c.took = time.Since(began)
	if !unclear {
		c.renewed = began
		c.Lane.Extend(began.Add(k.TTL))
	}
	return nil
}

// observe reports what was written to the observer.
func (c *Checkpointer) observe(settled []dispatch.Settlement) {
	if c.Observer == nil {
		return
	}
	c.Observer.Observe(&event.Checkpoint{Lane: c.Lease.Lane, Settled: len(settled), Began: c.renewed, Duration: c.took})
	for s := range each(settled) {
		if s.Parked != nil && !s.Again() && s.Parked.State != store.StateSettling && !s.IsMember() {
			p := parkedOf(s)
			c.Observer.Observe(&p)
		}
	}
}
