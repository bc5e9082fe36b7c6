package mysql

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
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
	case collides(err) || refused(err, lockWait):
		return store.Pruned{Through: p.After}, nil // the next pass removes them
	case err != nil:
		return store.Pruned{}, fmt.Errorf("remove old rows of the log: %w", advise(err))
	}
	return pruned, nil
}

func (s *Store) prune(ctx context.Context, p store.Pruning) (store.Pruned, error) {
	pruned := store.Pruned{Through: p.After}
	progress, err := s.progress(ctx, s.db, p.Sinks)
	if err != nil || progress.keepsAll() {
		return pruned, err
	}
	removable := 0
	err = s.run.Row(ctx, s.db, `SELECT count(*), coalesce(max("offset"), ?), count(CASE WHEN ? AND ? THEN 1 END)
		FROM (SELECT "offset", occurred_on FROM {log} WHERE "offset" > ? ORDER BY "offset" LIMIT ?) looked`,
		p.After, old(p.Age), progress.settled(), p.After, p.Limit).Scan(&pruned.Looked, &pruned.Through, &removable)
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
	n, err := s.run.Exec(ctx, tx, `DELETE FROM {log} WHERE "offset" > ? AND "offset" <= ? AND ? AND ?`, p.After, through, old(p.Age), was.settled())
	if err != nil {
		return 0, err
	}
	now, err := s.progress(ctx, tx, p.Sinks)
	if err != nil || !now.covers(was) {
		return 0, err // a cursor was set back, or there is a new one
	}
	return int(n), tx.Commit()
}

// sinkProgress describes how far a sink has settled the log.
type sinkProgress struct {
	sink      string
	positions []position // of the sink's cursors
	reason    string     // why the sink keeps all rows; "" if it does not
}

// logProgress describes how far all sinks have settled the log.
type logProgress []sinkProgress

// keepsAll reports whether a sink keeps all rows, or there is no sink, so that it is not known what is
// settled.
func (l logProgress) keepsAll() bool {
	for _, p := range l {
		if p.reason != "" {
			return true
		}
	}
	return len(l) == 0
}

// covers reports whether everything that was settled in an earlier progress still is.
func (l logProgress) covers(was logProgress) bool {
	if l.keepsAll() {
		return false
	}
	least := func(l logProgress) (top int64, unsettled spans) {
		top = math.MaxInt64
		for _, sink := range l {
			for _, p := range sink.positions {
				top, unsettled = min(top, p.goal().top), unsettled.or(p.unsettled())
			}
		}
		return top, unsettled
	}
	top, unsettled := least(l)
	topBefore, unsettledBefore := least(was)
	return top >= topBefore && len(unsettled.minus(unsettledBefore).upTo(topBefore)) == 0
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
	progress := make(logProgress, len(all))
	for i, c := range all {
		progress[i] = sinkProgress{sink: c.Sink, reason: c.Reason}
		for _, raw := range c.Positions {
			progress[i].add(raw, next)
		}
	}
	return progress, nil
}

// add adds the position of a cursor. A position after the end of the log is a reason to keep all rows.
func (p *sinkProgress) add(raw json.RawMessage, next int64) {
	pos, err := parsePosition(raw)
	switch {
	case p.reason != "":
	case err != nil:
		p.reason = err.Error()
	default:
		p.reason = conflict(pos, next)
	}
	p.positions = append(p.positions, pos)
}

// settled returns the condition that all sinks have settled a row. Nearly all old rows are below the
// common bound. The snapshots decide about the others: rows after the hole of an open transaction.
func (l logProgress) settled() tables.Expr {
	through := int64(math.MaxInt64)
	behind, n := tables.SQL(`true`), 0
	distinct := make(map[string]bool)
	for _, sink := range l {
		for _, p := range sink.positions {
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

// Holders lists the sinks that keep rows in the log; see store.Inspector.
func (s *Store) Holders(ctx context.Context, sinks []string) (holders []store.Holder, err error) {
	if s.Source() != nil {
		return nil, nil // a source has its own retention
	}
	progress, err := s.progress(ctx, s.db, sinks)
	for i := 0; i < len(progress) && err == nil; i++ {
		var row *store.Row
		if row, err = s.oldestKept(ctx, progress[i]); row != nil {
			holders = append(holders, store.Holder{Sink: progress[i].sink, Row: *row, Reason: progress[i].reason})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("find the sinks that keep the log: %w", advise(err))
	}
	return holders, nil
}

// oldestKept returns the first row that a sink keeps; nil if there is none.
func (s *Store) oldestKept(ctx context.Context, p sinkProgress) (*store.Row, error) {
	if p.reason != "" {
		return s.run.Oldest(ctx, s.db, 0)
	}
	through := int64(math.MaxInt64)
	for _, pos := range p.positions {
		through = min(through, pos.through())
	}
	return s.run.ScanRow(s.run.Row(ctx, s.db, `SELECT "offset", occurred_on FROM (
			SELECT "offset", occurred_on FROM {log} WHERE "offset" > ? ORDER BY "offset" LIMIT ?) looked
		WHERE NOT ? ORDER BY "offset" LIMIT 1`, through, holderRows, logProgress{p}.settled()))
}
