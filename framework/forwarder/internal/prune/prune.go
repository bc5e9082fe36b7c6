// Package prune removes what no sink needs any more and is old enough: rows of the log, or whole
// partitions of it, receipts, cancellations, uniqueness keys and ids of the inbox.
//
// Every forwarder has a pruner; the lease of the reserved sink [store.SinkPruner] elects the one
// that works. Two at once would be harmless, so nothing but the lease keeps others away.
//
// A pass begins at the oldest row and continues batch by batch until one has nothing to remove:
// usually the rest is too recent, or not settled. But times of rows need not be in order, since
// applications set them, so a range of recent rows may be before old ones. Therefore each pass
// also examines one batch further on, the patrol, which cycles through the whole log and
// continues there as long as it finds something.
package prune

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store"
)

// KeepForever as a Retention removes nothing: it is longer than anything has been stored.
const KeepForever time.Duration = math.MaxInt64

const (
	// batchRows is how many rows one transaction examines: few enough to take some tens of
	// milliseconds.
	batchRows = 5000
	// inboxBatches is how many batches a pass removes from each of the tables that applications
	// fill, the inbox, cancellations and uniqueness keys, and of the attempts at customers' endpoints.
	inboxBatches = 100
	// restShare is how many times longer than a transaction the pruner rests after it: so it
	// uses a fifth of one connection's time.
	restShare = 4
	// leastRest keeps passes with small batches from becoming a busy loop.
	leastRest = 5 * time.Millisecond
)

// Leases elect the pruner that works. Stores implement them.
type Leases interface {
	Cut(ctx context.Context, sink string, lanes int, start store.Start) (store.Created, error)
	Acquire(ctx context.Context, lane store.Lane, owner string, ttl time.Duration) (store.Lease, error)
	// Checkpoint renews a lease.
	Checkpoint(ctx context.Context, c store.Checkpoint) error
	Release(ctx context.Context, lease store.Lease) error
}

// Config is the configuration of a pruner. Partitions and Observer are optional.
type Config struct {
	Leases Leases
	Rows   store.Pruner
	// Partitions are the partitions of the log; nil if the store has none.
	Partitions store.Partitioner
	// Bound runs a statement on Rows or Partitions as soon as there is a connection for it. Required.
	Bound func(ctx context.Context, run func() error) error
	// Retention is how long rows stay after they occurred, and receipts after their delivery.
	// With KeepForever nothing is removed, and partitions are only created.
	Retention time.Duration
	// InboxRetention is how long ids stay in the inbox. KeepForever removes none.
	InboxRetention time.Duration
	// Sinks returns this forwarder's sinks. A sink without cursors keeps everything.
	Sinks func() []string
	// Owner is this forwarder's name in the lease.
	Owner string
	// Lease is how long the lease lasts. It also bounds each use of the database.
	Lease time.Duration
	// Observer, if not nil, is called with what is removed, and with errors.
	Observer event.Observer
	Logger   *slog.Logger
}

// Pruner removes what no sink needs any more, while it has the lease.
type Pruner struct {
	config  Config
	failing *pace.Trouble
	holders holders

	lease   store.Lease
	renewed time.Time
	patrol  int64 // the patrol continues after this offset
	foreign bool  // the log belongs to another role, which was logged
}

// New returns a pruner. It starts nothing.
func New(c Config) *Pruner {
	if c.Partitions != nil && !c.Partitions.Partitioned() {
		c.Partitions = nil
	}
	return &Pruner{
		config:  c,
		failing: pace.NewTrouble(c.Logger, "removing old rows", 0),
		holders: newHolders(c),
	}
}

// Run works whenever it can get the lease, until stop is done. It returns at once if there is
// never anything to do. db bounds releasing the lease after stop. Errors are logged and what
// failed is tried again.
func (p *Pruner) Run(stop, db context.Context) {
	if p.config.Retention == KeepForever && p.config.InboxRetention == KeepForever && p.config.Partitions == nil {
		return
	}
	for stop.Err() == nil {
		err := p.elect(stop, db)
		switch {
		case stop.Err() != nil:
		case errors.Is(err, store.ErrLeaseHeld), errors.Is(err, store.ErrLeaseLost), errors.Is(err, store.ErrServerChanged):
			p.failing.Over()
			pace.Sleep(stop, p.config.Lease/3)
		default:
			event.Tell(p.config.Observer, &event.DatabaseFailure{Op: event.OpPrune, Err: err})
			pace.Sleep(stop, p.failing.Met(err))
		}
	}
}

// elect works while this pruner has the lease, and returns why that ended; ErrLeaseHeld if
// another pruner has it.
func (p *Pruner) elect(stop, db context.Context) error {
	if err := p.within(stop, func(ctx context.Context) error {
		_, err := p.config.Leases.Cut(ctx, store.SinkPruner, 1, "")
		return err
	}); err != nil {
		return err
	}
	err := p.within(db, func(ctx context.Context) (err error) {
		p.renewed = time.Now()
		p.lease, err = p.config.Leases.Acquire(ctx, store.NewLane(store.SinkPruner, 0, 1), p.config.Owner, p.config.Lease)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { // if releasing fails, the lease expires
		_ = p.within(db, func(ctx context.Context) error { return p.config.Leases.Release(ctx, p.lease) })
	}()
	for {
		if err := p.pass(stop); err != nil {
			return err
		}
		p.failing.Over()
		if err := p.rest(stop, interval(min(p.config.Retention, p.config.InboxRetention))); err != nil {
			return err
		}
	}
}

// interval returns the pause between two passes: a hundredth of the retention, which is how much
// longer rows may stay, between a second and a minute.
func interval(retention time.Duration) time.Duration {
	return min(max(retention/100, time.Second), time.Minute)
}

// pass creates partitions, and removes everything that may go. Uniqueness keys, the inbox and attempts
// come last, and only a part of them if they are large, so that the log does not wait for them.
func (p *Pruner) pass(stop context.Context) error {
	if err := p.extend(stop); err != nil {
		return err
	}
	if err := p.old(stop); err != nil {
		return err
	}
	if _, err := p.batches(stop, store.LeftoverClaims, 0, inboxBatches); err != nil {
		return err
	}
	if p.config.InboxRetention != KeepForever {
		if _, err := p.batches(stop, store.LeftoverIDs, p.config.InboxRetention, inboxBatches); err != nil {
			return err
		}
	}
	_, err := p.batches(stop, store.LeftoverAttempts, 0, inboxBatches)
	return err
}

// old removes what is older than the retention.
func (p *Pruner) old(stop context.Context) error {
	if p.config.Retention == KeepForever {
		return nil
	}
	if err := p.partitions(stop); err != nil {
		return err
	}
	rows, err := p.rows(stop)
	if err != nil {
		return err
	}
	receipts, err := p.batches(stop, store.LeftoverReceipts, p.config.Retention, math.MaxInt)
	if err != nil {
		return err
	}
	if _, err := p.batches(stop, store.LeftoverCancellations, p.config.Retention, inboxBatches); err != nil {
		return err
	}
	if rows > 0 || receipts > 0 {
		p.observe(event.Pruned{Rows: rows, Receipts: receipts})
		p.config.Logger.Debug("removed old rows", "rows", rows, "receipts", receipts)
	}
	return p.statement(stop, func(ctx context.Context) error {
		found, err := p.config.Rows.Holders(ctx, p.config.Sinks())
		if err == nil {
			p.holders.warn(found)
		}
		return err
	})
}

func (p *Pruner) observe(removed event.Pruned) {
	event.Tell(p.config.Observer, &removed)
}

// extend creates partitions ahead of the log.
func (p *Pruner) extend(stop context.Context) error {
	if p.config.Partitions == nil {
		return nil
	}
	return p.owned(p.statement(stop, func(ctx context.Context) error {
		_, err := p.config.Partitions.ExtendPartitions(ctx)
		return err
	}))
}

// owned ignores the error that only another role may create and drop partitions, and logs it
// once: rows are then removed one by one.
func (p *Pruner) owned(err error) error {
	if !errors.Is(err, store.ErrNotOwner) {
		p.foreign = p.foreign && err != nil
		return err
	}
	if !p.foreign {
		p.foreign = true
		attributes := []any{"error", err}
		var advised *store.AdvisedError
		if errors.As(err, &advised) {
			attributes = append(attributes, "hint", advised.Advice())
		}
		p.config.Logger.Warn("partitions are neither created nor dropped: old rows are removed one by one", attributes...)
	}
	return nil
}

// partitions drops the partitions of which all rows may be removed.
func (p *Pruner) partitions(stop context.Context) error {
	if p.config.Partitions == nil {
		return nil
	}
	return p.owned(p.statement(stop, func(ctx context.Context) error {
		dropped, err := p.config.Partitions.PrunePartitions(ctx, p.pruning(0, 0))
		if dropped > 0 {
			p.observe(event.Pruned{Partitions: dropped})
			p.config.Logger.Debug("dropped old partitions", "partitions", dropped)
		}
		return err
	}))
}

// rows removes rows at the beginning of the log, and those that the patrol finds.
func (p *Pruner) rows(stop context.Context) (removed int, err error) {
	removed, end, err := p.sweep(stop, 0)
	if err != nil || end == 0 {
		return removed, err
	}
	// Some rows stay, but perhaps not all of those after them.
	more, patrol, err := p.sweep(stop, max(p.patrol, end))
	if err != nil {
		return removed, err
	}
	p.patrol = patrol
	return removed + more, nil
}

// sweep removes rows batch by batch after an offset, until a batch has none to remove. It returns
// the offset after that batch, or 0 if it reached the end of the log.
func (p *Pruner) sweep(stop context.Context, after int64) (removed int, end int64, err error) {
	for {
		began := time.Now()
		var batch store.Pruned
		err := p.statement(stop, func(ctx context.Context) (err error) {
			batch, err = p.config.Rows.Prune(ctx, p.pruning(after, batchRows))
			return err
		})
		switch {
		case err != nil:
			return removed, 0, err
		case batch.Looked < batchRows:
			return removed + batch.Removed, 0, nil
		case batch.Removed == 0:
			return removed, batch.Through, nil
		}
		removed, after = removed+batch.Removed, batch.Through
		if err := p.rest(stop, restAfter(began)); err != nil {
			return removed, 0, err
		}
	}
}

func (p *Pruner) pruning(after int64, limit int) store.Pruning {
	return store.Pruning{Age: p.config.Retention, After: after, Limit: limit, Sinks: p.config.Sinks()}
}

// batches removes what is older than an age, batch by batch until there is no more, but at most
// the given number of batches.
func (p *Pruner) batches(stop context.Context, kind store.Leftover, age time.Duration, most int) (removed int, err error) {
	for range most {
		began := time.Now()
		n := 0
		err := p.statement(stop, func(ctx context.Context) (err error) {
			n, err = p.config.Rows.PruneLeftovers(ctx, kind, age, batchRows)
			return err
		})
		removed += n
		if err != nil || n < batchRows {
			return removed, err
		}
		if err := p.rest(stop, restAfter(began)); err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// restAfter returns the pause after a transaction.
func restAfter(began time.Time) time.Duration {
	return max(restShare*time.Since(began), leastRest)
}

// rest waits, and renews the lease in time.
func (p *Pruner) rest(stop context.Context, pause time.Duration) error {
	until := time.Now().Add(pause)
	for {
		due := p.renewed.Add(p.config.Lease / 3)
		if now := time.Now(); !now.Before(due) {
			err := p.within(stop, func(ctx context.Context) error {
				return p.config.Leases.Checkpoint(ctx, store.Checkpoint{Lease: p.lease, TTL: p.config.Lease})
			})
			if err != nil {
				return err
			}
			p.renewed = now
			continue
		}
		if !pace.Sleep(stop, min(time.Until(until), time.Until(due))) {
			return stop.Err()
		}
		if !time.Now().Before(until) {
			return nil
		}
	}
}

// statement runs a statement on Rows or Partitions.
func (p *Pruner) statement(stop context.Context, do func(context.Context) error) error {
	return p.within(stop, func(ctx context.Context) error {
		return p.config.Bound(ctx, func() error { return do(ctx) })
	})
}

// within bounds a use of the database by the time of the lease.
func (p *Pruner) within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.config.Lease)
	defer cancel()
	return do(ctx)
}
