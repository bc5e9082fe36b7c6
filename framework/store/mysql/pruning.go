package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/spans"
)

var _ store.Pruner = (*Store)(nil)

// holderRows is how many rows after a sink's bound are searched for the first one that the sink has not
// settled.
const holderRows = 5000

// maxPositions limits how many conditions are evaluated for each row.
const maxPositions = 64

// old returns the condition that a row is old enough.
func old(age time.Duration) tables.Expr {
	return tables.SQL(`occurred_on < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND`, age.Microseconds())
}

// Prune removes old rows; see store.Pruner. It reads first, and locks rows only if there is something to
// remove.
func (s *Store) Prune(ctx context.Context, p store.Pruning) (store.Pruned, error) {
	if s.Source() != nil {
		return store.Pruned{Through: p.After}, nil
	}
	pruned, err := s.prune(ctx, p)
	switch {
	case collides(err) || session.Refused(err, session.LockWait):
		return store.Pruned{Through: p.After}, nil // the next pass removes them
	case err != nil:
		return store.Pruned{}, fmt.Errorf("remove old rows of the log: %w", session.Advise(err))
	}
	return pruned, nil
}

func (s *Store) prune(ctx context.Context, p store.Pruning) (store.Pruned, error) {
	pruned := store.Pruned{Through: p.After}
	progress, err := s.progress(ctx, s.db, p.Sinks)
	if err != nil || progress.KeepsAll() {
		return pruned, err
	}
	removable := 0
	err = s.run.Row(ctx, s.db, `SELECT count(*), coalesce(max("offset"), ?), count(CASE WHEN ? AND ? THEN 1 END)
		FROM (SELECT "offset", occurred_on FROM {log} WHERE "offset" > ? ORDER BY "offset" LIMIT ?) looked`,
		p.After, old(p.Age), settled(progress), p.After, p.Limit).Scan(&pruned.Looked, &pruned.Through, &removable)
	if err != nil || removable == 0 {
		return pruned, err
	}
	pruned.Removed, err = s.remove(ctx, p, pruned.Through, progress)
	return pruned, err
}

// remove deletes the old rows of a range if they are still settled. In READ COMMITTED it locks only these
// rows.
func (s *Store) remove(ctx context.Context, p store.Pruning, through int64, was logProgress) (removed int, err error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after the commit
	n, err := s.run.Exec(ctx, tx, `DELETE FROM {log} WHERE "offset" > ? AND "offset" <= ? AND ? AND ?`, p.After, through, old(p.Age), settled(was))
	if err != nil {
		return 0, err
	}
	now, err := s.progress(ctx, tx, p.Sinks)
	if err != nil || !covers(now, was) {
		return 0, err // a cursor was set back, or there is a new one
	}
	return int(n), tx.Commit()
}

// logProgress describes how far all sinks have settled the log.
type logProgress = tables.LogProgress[position]

// covers reports whether everything that was settled in an earlier progress still is.
func covers(l, was logProgress) bool {
	if l.KeepsAll() {
		return false
	}
	least := func(l logProgress) (top int64, unsettled spans.Set) {
		top = math.MaxInt64
		for _, sink := range l {
			for _, p := range sink.Positions {
				top, unsettled = min(top, p.goal().top), unsettled.Or(p.unsettled())
			}
		}
		return top, unsettled
	}
	top, unsettled := least(l)
	topBefore, unsettledBefore := least(was)
	return top >= topBefore && len(unsettled.Minus(unsettledBefore).UpTo(topBefore)) == 0
}

// progress reads the cursors and compares them with the log. It includes named sinks without cursors.
func (s *Store) progress(ctx context.Context, q tables.Querier, sinks []string) (logProgress, error) {
	all, err := s.run.SinkCursors(ctx, q, sinks)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	next, err := s.nextOffset(ctx, q)
	if err != nil {
		return nil, err
	}
	return tables.Compare(all, parsePosition, func(p position) string { return conflict(p, next) }), nil
}

// settled returns the condition that all sinks have settled a row. Nearly all old rows are below the
// common bound. The snapshots decide about the others: rows after the hole of an open transaction.
func settled(l logProgress) tables.Expr {
	through := int64(math.MaxInt64)
	behind, n := tables.SQL(`true`), 0
	distinct := make(map[string]bool)
	for _, sink := range l {
		for _, p := range sink.Positions {
			through = min(through, p.through())
			settled := tables.SQL(`("offset" <= ? OR ?)`, p.through(), orFalse(p.settled()))
			if name := fmt.Sprint(p.through(), p.goal().top, p.unsettled()); !distinct[name] {
				distinct[name] = true
				behind, n = tables.SQL(`? AND ?`, behind, settled), n+1
			}
		}
	}
	if n > maxPositions {
		return tables.SQL(`"offset" <= ?`, through)
	}
	return tables.SQL(`("offset" <= ? OR ?)`, through, behind)
}

func orFalse(e tables.Expr) tables.Expr {
	if e.Text == "" {
		return tables.SQL(`false`)
	}
	return e
}

// Kept reads the cursors and the log.
func (d *dialect) Kept(ctx context.Context, sinks []string) (kept tables.Kept, err error) {
	progress, err := d.progress(ctx, d.db, sinks)
	if err == nil {
		kept, err = progress.Kept(func(p tables.Progress[position]) (*store.Row, error) { return d.oldestKept(ctx, p) })
	}
	return kept, err
}

// oldestKept returns the first row that a sink keeps; nil if there is none.
func (s *Store) oldestKept(ctx context.Context, p tables.Progress[position]) (*store.Row, error) {
	if p.Reason != "" {
		return s.run.Oldest(ctx, s.db, 0)
	}
	through := int64(math.MaxInt64)
	for _, pos := range p.Positions {
		through = min(through, pos.through())
	}
	return s.run.ScanRow(s.run.Row(ctx, s.db, `SELECT "offset", occurred_on FROM (
			SELECT "offset", occurred_on FROM {log} WHERE "offset" > ? ORDER BY "offset" LIMIT ?) looked
		WHERE NOT ? ORDER BY "offset" LIMIT 1`, through, holderRows, settled(logProgress{p})))
}
