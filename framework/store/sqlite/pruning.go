package sqlite

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

var _ store.Pruner = (*Store)(nil)

// old is the condition that a time, in any form that the log accepts, is longer ago than a number of
// days, which is the next argument.
func old(column string) string { return `julianday(` + column + `) < julianday('now') - ?` }

func days(age time.Duration) float64 { return age.Hours() / 24 }

// Prune removes old rows; see store.Pruner. It reads first, and takes the write lock only if there is
// something to remove.
func (s *Store) Prune(ctx context.Context, p store.Pruning) (store.Pruned, error) {
	if s.Source() != nil {
		return store.Pruned{Through: p.After}, nil
	}
	pruned := store.Pruned{Through: p.After}
	through, err := s.settledByAll(ctx, s.db, p.Sinks)
	if err == nil && through > p.After {
		removable := 0
		err = s.db.QueryRowContext(ctx, `SELECT count(*), coalesce(max("offset"), ?), count(*) FILTER (WHERE old)
			FROM (SELECT "offset", `+old("occurred_on")+` AS old FROM `+s.names.Log()+` WHERE "offset" > ? AND "offset" <= ? ORDER BY "offset" LIMIT ?)`,
			p.After, days(p.Age), p.After, through, p.Limit).Scan(&pruned.Looked, &pruned.Through, &removable)
		if err == nil && removable > 0 {
			pruned.Removed, err = s.remove(ctx, p, pruned.Through)
		}
	}
	if err != nil {
		return store.Pruned{}, fmt.Errorf("remove old rows of the log: %w", err)
	}
	return pruned, nil
}

// remove deletes the old rows of a range if the range is still settled. Its first statement writes, so
// that a connection whose transactions begin deferred also waits for the write lock before it has
// read anything.
func (s *Store) remove(ctx context.Context, p store.Pruning, through int64) (int, error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	result, err := tx.ExecContext(ctx, `DELETE FROM `+s.names.Log()+` WHERE "offset" > ? AND "offset" <= ? AND `+old("occurred_on"), p.After, through, days(p.Age))
	if err != nil {
		return 0, err
	}
	if now, err := s.settledByAll(ctx, tx, p.Sinks); err != nil || now < through {
		return 0, err // a cursor was set back, or a new one was created
	}
	removed, err := result.RowsAffected()
	if err != nil {
		return 0, err
	}
	return int(removed), tx.Commit()
}

// settledByAll returns an offset up to which all sinks have settled every row; 0 without sinks, since
// it is unknown then.
func (s *Store) settledByAll(ctx context.Context, q tables.Querier, sinks []string) (int64, error) {
	progress, err := s.progress(ctx, q, sinks)
	if err != nil || progress.KeepsAll() {
		return 0, err
	}
	through := int64(math.MaxInt64)
	for _, p := range progress {
		through = min(through, settledBy(p))
	}
	return through, nil
}

// settledBy returns an offset up to which a sink has settled every row.
func settledBy(p tables.Progress[position]) int64 {
	if p.Reason != "" {
		return 0
	}
	return int64(slices.Min(p.Positions))
}

// progress returns how far the sinks with cursors, and the named ones, have settled the log. If a
// position is after the end of the log, the sink keeps everything.
func (s *Store) progress(ctx context.Context, q tables.Querier, sinks []string) (tables.LogProgress[position], error) {
	last, err := s.last(ctx, q)
	if err != nil {
		return nil, err
	}
	all, err := s.run.SinkCursors(ctx, q, sinks)
	return tables.Compare(all, parsePosition, func(pos position) string {
		if int64(pos) <= last {
			return ""
		}
		return fmt.Sprintf("its cursor is past offset %d and the log ends at %d: the log was started again", pos, last)
	}), err
}

// Kept reads the cursors and the log.
func (d *dialect) Kept(ctx context.Context, sinks []string) (kept tables.Kept, err error) {
	progress, err := d.progress(ctx, d.db, sinks)
	if err == nil {
		kept, err = progress.Kept(func(p tables.Progress[position]) (*store.Row, error) { return d.run.Oldest(ctx, d.db, settledBy(p)) })
	}
	return kept, err
}
