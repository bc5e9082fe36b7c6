package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/postgres/internal/catalog"
)

var _ store.Pruner = (*Store)(nil)

const (
	// prunerPatience bounds waiting for a lock. It is far below deadlock_timeout, so that the
	// pruner gives way to others, and so short that publishers behind it hardly notice.
	prunerPatience = 100 * time.Millisecond
	// idleTime is how long the server waits for the next statement of a transaction that holds
	// others up. Otherwise a client that is stopped or gone would keep its locks for hours.
	idleTime = 2 * time.Second
	// holderRows is how many rows after a sink's bound are searched for the first one that it
	// has not settled.
	holderRows = 5000
	// maxPositions bounds the conditions that are evaluated for each row.
	maxPositions = 64
)

// Prune removes old rows; see store.Pruner.
//
// Rows are settled by their transaction ids and offsets, which have a meaning only in one history.
// So it reads the cursors, the log's history and its rows in one snapshot, with a lock that keeps
// other sessions from truncating or recreating the log meanwhile.
func (s *Store) Prune(ctx context.Context, p store.Pruning) (store.Pruned, error) {
	if s.Source() != nil {
		return store.Pruned{Through: p.After}, nil
	}
	pruned := store.Pruned{Through: p.After}
	err := s.pruneTx(ctx, ``, func(tx *sql.Tx) error {
		progress, err := s.progress(ctx, tx, p.Sinks)
		if err != nil || progress.KeepsAll() {
			return err
		}
		table, err := s.prunable(ctx, tx)
		if err != nil {
			return err
		}
		look := statement{args: []any{p.After}}
		look.WriteString(`SELECT count(*), coalesce(max("offset"), $1::bigint), count(*) FILTER (WHERE ` + old(&look, p.Age))
		settledSQL(progress, &look)
		look.WriteString(`) FROM (SELECT "offset", transaction_id, occurred_on FROM ` + table +
			` WHERE "offset" > $1 ORDER BY "offset" LIMIT ` + strconv.Itoa(p.Limit) + `) looked` + whole(table))
		removable := 0
		if err := tx.QueryRowContext(ctx, look.String(), look.args...).Scan(&pruned.Looked, &pruned.Through, &removable); err != nil {
			return err
		}
		if removable == 0 {
			return nil
		}
		remove := statement{args: []any{p.After, pruned.Through}}
		remove.WriteString(`DELETE FROM ` + table + s.sql.between + ` AND ` + old(&remove, p.Age))
		settledSQL(progress, &remove)
		result, err := tx.ExecContext(ctx, remove.String(), remove.args...)
		if err != nil {
			return err
		}
		removed, err := result.RowsAffected()
		pruned.Removed = int(removed)
		return err
	})
	switch {
	case isInTheWay(err):
		return store.Pruned{Through: p.After}, nil
	case err != nil:
		return store.Pruned{}, fmt.Errorf("remove old rows of the log: %w", advise(err))
	}
	return pruned, nil
}

// prunable returns the table whose rows are removed one by one: in a partitioned log the default
// partition, unless this role may not drop the others.
func (s *Store) prunable(ctx context.Context, q store.RowQuerier) (string, error) {
	if !s.parts {
		return s.names.Log(), nil
	}
	owns, err := s.owns(ctx, q)
	if err != nil || !owns {
		return s.names.Log(), err
	}
	return s.names.Table(defaultPartition), nil
}

// pruneTx runs a function in a transaction with one snapshot, and with a lock on the log as weak as
// a reader's. The lock comes before the snapshot, since waiting for it would make the snapshot old;
// so do further locks.
func (s *Store) pruneTx(ctx context.Context, locks string, do func(tx *sql.Tx) error) error {
	if err := s.meet(ctx); err != nil {
		return err
	}
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(
		`SET LOCAL lock_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %d; LOCK TABLE ONLY %s IN ACCESS SHARE MODE; %s`,
		prunerPatience.Milliseconds(), idleTime.Milliseconds(), s.names.Log(), locks)); err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// isInTheWay reports whether another transaction holds the same rows or the table. The next pass
// tries again.
func isInTheWay(err error) bool {
	return catalog.Refused(err,
		"55P03", // lock_not_available
		"40001", // serialization_failure
		"40P01", // deadlock_detected
	)
}

// old is the condition that a row is old enough.
func old(q *statement, age time.Duration) string {
	return `occurred_on < now() - ` + q.arg(age.Microseconds()) + ` * interval '1 microsecond'`
}

// logProgress is how far all sinks have settled the log.
type logProgress = tables.LogProgress[position]

// progress reads the cursors and compares them with the log as the transaction sees it. It includes
// named sinks that have no cursors.
func (s *Store) progress(ctx context.Context, tx *sql.Tx, sinks []string) (logProgress, error) {
	now, err := s.runProbe(ctx, tx, s.sql.probe)
	if err != nil {
		return nil, err
	}
	all, err := s.run.SinkCursors(ctx, tx, sinks)
	return tables.Compare(all, parsePosition, func(p position) string { return p.conflict(now, p.goal().Last) }), err
}

// settledSQL adds the condition that all sinks have settled a row. Nearly all old rows are below the
// common bound. The snapshots decide about the others: the last rows of a quiet log, and those
// around a transaction that stays open.
func settledSQL(l logProgress, q *statement) {
	through := int64(math.MaxInt64)
	var distinct []string
	positions := make(map[string]*position)
	for _, sink := range l {
		for i := range sink.Positions {
			p := &sink.Positions[i]
			through = min(through, p.settled())
			if name := p.name(); positions[name] == nil {
				positions[name] = p
				distinct = append(distinct, name)
			}
		}
	}
	q.WriteString(` AND ("offset" <= ` + q.arg(through))
	if len(distinct) <= maxPositions {
		q.WriteString(` OR true`)
		for _, name := range distinct {
			q.WriteString(` AND ` + positions[name].settledSQL(q))
		}
	}
	q.WriteString(`)`)
}

// name identifies positions that settledSQL does not distinguish.
func (p *position) name() string {
	if p.delta == nil {
		return p.base.Snapshot.text
	}
	return fmt.Sprint(p.delta.From.Snapshot.text, p.delta.Until.Snapshot.text, p.offset, p.delta.Restored)
}

// settledSQL is the condition of settles, without the bounds, as SQL.
func (p *position) settledSQL(q *statement) string {
	if p.delta == nil {
		return visibleSQL(q, &p.base.Snapshot)
	}
	d := p.delta
	return `(` + visibleSQL(q, &d.From.Snapshot) + ` OR "offset" <= ` + q.arg(p.offset) +
		` AND ("offset" <= ` + q.arg(d.Restored) + ` OR ` + visibleSQL(q, &d.Until.Snapshot) + `))`
}

// visibleSQL is the condition that a row's transaction had ended in a snapshot.
func visibleSQL(q *statement, s *snapshot) string {
	return `pg_visible_in_snapshot(transaction_id, ` + q.arg(s.text) + `::pg_snapshot)`
}

// Kept looks in one snapshot, like Prune.
func (d *dialect) Kept(ctx context.Context, sinks []string) (kept tables.Kept, err error) {
	err = d.pruneTx(ctx, ``, func(tx *sql.Tx) error {
		progress, err := d.progress(ctx, tx, sinks)
		if err == nil {
			kept, err = progress.Kept(func(p tables.Progress[position]) (*store.Row, error) { return d.oldestKept(ctx, tx, p) })
		}
		return err
	})
	return kept, err
}

// oldestKept returns the first row that a sink keeps, or nil.
func (s *Store) oldestKept(ctx context.Context, q tables.Querier, p tables.Progress[position]) (*store.Row, error) {
	if p.Reason != "" {
		return s.run.Oldest(ctx, q, 0)
	}
	through := p.Positions[0].settled()
	for i := range p.Positions {
		through = min(through, p.Positions[i].settled())
	}
	look := statement{args: []any{through}}
	look.WriteString(`SELECT "offset", occurred_on FROM (SELECT "offset", transaction_id, occurred_on FROM ` + s.names.Log() +
		` WHERE "offset" > $1 ORDER BY "offset" LIMIT ` + strconv.Itoa(holderRows) + `) looked WHERE NOT (true`)
	settledSQL(logProgress{p}, &look)
	look.WriteString(`) ORDER BY "offset" LIMIT 1` + s.sql.whole)
	return s.run.ScanRow(q.QueryRowContext(ctx, look.String(), look.args...))
}
