package forwarder

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/settle"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	// expireRows is how many rows one transaction of the janitor looks at: few
	// enough to take some tens of milliseconds.
	expireRows = 5000
	// restShare is how much longer the janitor rests behind each transaction than
	// it took: it has a fifth of one connection's time.
	restShare = 4
	// leastRest keeps passes over small batches from being a busy loop.
	leastRest = 5 * time.Millisecond
)

// janitor removes what no sink needs any more and is old enough. Every forwarder
// has one; the lease of the reserved sink [store.SinkPruner] elects the one that
// works. Two at once would do no harm, so nothing more than the lease's time
// keeps the others away.
//
// A pass begins at the oldest row and goes from batch to batch until one
// holds nothing to remove: as a rule the rest is too young, or not settled. What
// applications write as the time of a row need not be in order, so a stretch of
// young rows may lie before old ones. Each pass therefore looks at one batch
// farther on as well, the patrol, which goes round through the whole log and stays
// as long as it finds something.
type janitor struct {
	store    Store
	retainer store.Pruner
	// partitioner is nil where the log is not partitioned.
	partitioner store.Partitioner
	retention   time.Duration
	sinks       []string // of this forwarder
	owner       string
	ttl         time.Duration
	log         *slog.Logger
	failing     *pace.Trouble

	lease   store.Lease
	renewed time.Time
	patrol  int64             // the patrol goes on behind this offset
	holding map[string]string // why a sink keeps old rows, as of the latest pass
	warned  map[string]string // the same, as was logged
}

// newJanitor returns nil where the store removes nothing, and where everything is
// kept for ever, unless partitions are to be made.
func newJanitor(f *Forwarder) *janitor {
	retainer, ok := f.config.Store.(store.Pruner)
	partitioner, _ := f.config.Store.(store.Partitioner)
	if partitioner != nil && !partitioner.Partitioned() {
		partitioner = nil
	}
	if !ok || f.config.Retention == KeepForever && partitioner == nil {
		return nil
	}
	j := &janitor{
		store: f.config.Store, retainer: retainer, partitioner: partitioner, retention: f.config.Retention,
		owner: f.owner, ttl: f.config.Lease, log: f.config.Logger,
		failing: pace.NewTrouble(f.config.Logger, "removing old rows", 0),
		warned:  make(map[string]string),
	}
	j.sinks = f.names
	return j
}

// run works whenever the lease can be had, until stop is done. db bounds giving it
// back.
func (j *janitor) run(stop, db context.Context) {
	if j == nil {
		return
	}
	for stop.Err() == nil {
		err := j.elect(stop, db)
		switch {
		case stop.Err() != nil:
		case errors.Is(err, store.ErrLeaseHeld), settle.Lost(err):
			j.failing.Over()
			pace.Sleep(stop, j.ttl/3)
		default:
			pace.Sleep(stop, j.failing.Met(err))
		}
	}
}

// elect works for as long as this janitor has the lease, and tells why it no longer
// does; ErrLeaseHeld if another one has it.
func (j *janitor) elect(stop, db context.Context) error {
	if err := j.within(stop, func(ctx context.Context) error { return j.store.Cut(ctx, store.SinkPruner, 1) }); err != nil {
		return err
	}
	err := j.within(db, func(ctx context.Context) (err error) {
		j.renewed = time.Now()
		j.lease, err = j.store.Acquire(ctx, store.NewLane(store.SinkPruner, 0, 1), j.owner, j.ttl)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { // a lease that cannot be given back runs out
		_ = j.within(db, func(ctx context.Context) error { return j.store.Release(ctx, j.lease) })
	}()
	return j.work(stop)
}

// within bounds a use of the database by the time of the lease.
func (j *janitor) within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, j.ttl)
	defer cancel()
	return do(ctx)
}

// work makes passes until stop is done or something fails, and tells which.
func (j *janitor) work(stop context.Context) error {
	for {
		if err := j.pass(stop); err != nil {
			return err
		}
		j.failing.Over()
		if err := j.rest(stop, j.interval()); err != nil {
			return err
		}
	}
}

// interval is the pause between two passes: a hundredth of the retention, so that
// rows stay that much longer at most, between a second and a minute.
func (j *janitor) interval() time.Duration {
	return min(max(j.retention/100, time.Second), time.Minute)
}

// pass makes partitions, and removes all that may go now.
func (j *janitor) pass(stop context.Context) error {
	if j.partitioner != nil {
		err := j.within(stop, func(ctx context.Context) error { _, err := j.partitioner.ExtendPartitions(ctx); return err })
		if err != nil {
			return err
		}
	}
	if j.retention == KeepForever {
		return nil
	}
	if j.partitioner != nil {
		dropped := 0
		err := j.within(stop, func(ctx context.Context) (err error) {
			dropped, err = j.partitioner.PrunePartitions(ctx, store.Pruning{Age: j.retention, Sinks: j.sinks})
			return err
		})
		if err != nil {
			return err
		}
		if dropped > 0 {
			j.log.Debug("dropped old partitions", "partitions", dropped)
		}
	}
	removed, end, err := j.sweep(stop, 0)
	if err != nil {
		return err
	}
	if end > 0 { // there are rows that stay: perhaps not all of those behind them
		more, patrol, err := j.sweep(stop, max(j.patrol, end))
		if err != nil {
			return err
		}
		j.patrol = patrol
		removed += more
	}
	receipts, err := j.receipts(stop)
	if err != nil {
		return err
	}
	if removed > 0 || receipts > 0 {
		j.log.Debug("removed old rows", "rows", removed, "receipts", receipts)
	}
	return j.lookForHolders(stop)
}

// sweep removes rows batch by batch from an offset on, until a batch has none that
// may go. It returns the offset behind that batch; 0 where it reached the end of
// the log.
func (j *janitor) sweep(stop context.Context, after int64) (removed int, end int64, err error) {
	for {
		began := time.Now()
		var e store.Pruned
		err := j.within(stop, func(ctx context.Context) (err error) {
			e, err = j.retainer.Prune(ctx, store.Pruning{Age: j.retention, After: after, Limit: expireRows, Sinks: j.sinks})
			return err
		})
		switch {
		case err != nil:
			return removed, 0, err
		case e.Looked < expireRows:
			return removed + e.Removed, 0, nil
		case e.Removed == 0:
			return removed, e.Through, nil
		}
		removed, after = removed+e.Removed, e.Through
		if err := j.rest(stop, max(restShare*time.Since(began), leastRest)); err != nil {
			return removed, 0, err
		}
	}
}

// receipts removes old receipts.
func (j *janitor) receipts(stop context.Context) (removed int, err error) {
	for {
		began := time.Now()
		n := 0
		err := j.within(stop, func(ctx context.Context) (err error) {
			n, err = j.retainer.PruneReceipts(ctx, j.retention, expireRows)
			return err
		})
		removed += n
		if err != nil || n < expireRows {
			return removed, err
		}
		if err := j.rest(stop, max(restShare*time.Since(began), leastRest)); err != nil {
			return removed, err
		}
	}
}

// rest waits, and renews the lease in time.
func (j *janitor) rest(stop context.Context, pause time.Duration) error {
	until := time.Now().Add(pause)
	for {
		due := j.renewed.Add(j.ttl / 3)
		if now := time.Now(); !now.Before(due) {
			err := j.within(stop, func(ctx context.Context) error {
				return j.store.Checkpoint(ctx, store.Checkpoint{Lease: j.lease, TTL: j.ttl})
			})
			if err != nil {
				return err
			}
			j.renewed = now
			continue
		}
		if !pace.Sleep(stop, time.Until(earlier(until, due))) {
			return stop.Err()
		}
		if !time.Now().Before(until) {
			return nil
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// lookForHolders warns of sinks that keep rows which could have gone: once, and
// again when the reason changes. One that this forwarder does not know may
// have been taken out of the configuration, and would keep the log for ever.
func (j *janitor) lookForHolders(stop context.Context) error {
	var holders []store.Holder
	err := j.within(stop, func(ctx context.Context) (err error) {
		holders, err = j.retainer.Holders(ctx, j.sinks)
		return err
	})
	if err != nil {
		return err
	}
	holding := make(map[string]string)
	for _, h := range holders {
		if time.Since(h.OccurredOn) < j.retention+2*j.interval() {
			continue // old enough only now, or not yet
		}
		why := h.Reason
		if why == "" {
			why = "it has not settled them"
		}
		holding[h.Sink] = why
		if j.holding[h.Sink] != why || j.warned[h.Sink] == why {
			continue // a cursor may be about to be made: a second look tells
		}
		j.warned[h.Sink] = why
		log := j.log.With("sink", h.Sink, "offset", h.Offset, "occurred_on", h.OccurredOn, "why", why)
		if slices.Contains(j.sinks, h.Sink) {
			log.Warn("a sink keeps rows that are older than the retention")
			continue
		}
		log.Warn("a sink that this forwarder does not have keeps rows that are older than the retention; " +
			"if no other has it either, run `waybill forget " + h.Sink + "`")
	}
	j.holding = holding
	maps.DeleteFunc(j.warned, func(sink, _ string) bool { return holding[sink] == "" })
	return nil
}
