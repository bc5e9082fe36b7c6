package quota

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// Pruner bounds a pruner like the reading of a backlog: it may wait.
func (b *Bounded) Pruner(p store.Pruner) store.Pruner { return &pruner{p, b} }

// pruner does not embed the store's: a method that is not bounded must not compile.
type pruner struct {
	rows    store.Pruner
	bounded *Bounded
}

// Prune implements store.Pruner.
func (p *pruner) Prune(ctx context.Context, e store.Pruning) (pruned store.Pruned, err error) {
	err = p.bounded.prune(ctx, func() error { pruned, err = p.rows.Prune(ctx, e); return err })
	return pruned, err
}

// PruneLeftovers implements store.Pruner.
func (p *pruner) PruneLeftovers(ctx context.Context, kind store.Leftover, age time.Duration, limit int) (removed int, err error) {
	err = p.bounded.prune(ctx, func() error { removed, err = p.rows.PruneLeftovers(ctx, kind, age, limit); return err })
	return removed, err
}

// Holders implements store.Pruner.
func (p *pruner) Holders(ctx context.Context, sinks []string) (holders []store.Holder, err error) {
	err = p.bounded.prune(ctx, func() error { holders, err = p.rows.Holders(ctx, sinks); return err })
	return holders, err
}

// Partitioner bounds the pruning of partitions in the same way; nil gives nil.
func (b *Bounded) Partitioner(p store.Partitioner) store.Partitioner {
	if p == nil {
		return nil
	}
	return &partitioner{p, b}
}

type partitioner struct {
	rows    store.Partitioner
	bounded *Bounded
}

// Partitioned implements store.Partitioner. It runs no statement.
func (p *partitioner) Partitioned() bool { return p.rows.Partitioned() }

// ExtendPartitions implements store.Partitioner.
func (p *partitioner) ExtendPartitions(ctx context.Context) (made int, err error) {
	err = p.bounded.prune(ctx, func() error { made, err = p.rows.ExtendPartitions(ctx); return err })
	return made, err
}

// PrunePartitions implements store.Partitioner.
func (p *partitioner) PrunePartitions(ctx context.Context, e store.Pruning) (dropped int, err error) {
	err = p.bounded.prune(ctx, func() error { dropped, err = p.rows.PrunePartitions(ctx, e); return err })
	return dropped, err
}

func (b *Bounded) prune(ctx context.Context, run func() error) error {
	return within(ctx, run, b.backlogs, b.reading)
}
