package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/postgres/internal/catalog"
)

// prunerPatience bounds waiting for a lock. It is far below deadlock_timeout, so that the
// pruner gives way to others, and so short that publishers behind it hardly notice.
const prunerPatience = 100 * time.Millisecond

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
	err := s.pruneTx(ctx, failpoint.Prune, ``, func(tx *sql.Tx) error {
		progress, err := s.run.Progress(ctx, tx, p.Sinks)
		if err != nil || progress.KeepsAll() {
			return err
		}
		table, err := s.prunable(ctx, tx)
		if err != nil {
			return err
		}
		removable, may := s.run.Removable(p.Age, progress), 0
		if pruned, may, err = s.run.LookForOld(ctx, tx, table, p, removable); err != nil || may == 0 {
			return err
		}
		return s.run.RemoveOld(ctx, tx, table, p, removable, &pruned)
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
func (s *Store) pruneTx(ctx context.Context, step failpoint.Step, locks string, do func(tx *sql.Tx) error) error {
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
		prunerPatience.Milliseconds(), catalog.IdleTime.Milliseconds(), s.names.Log(), locks)); err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return err
	}
	return step.Do(tx.Commit)
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
	err = d.pruneTx(ctx, failpoint.Prune, ``, func(tx *sql.Tx) (err error) {
		kept, err = d.run.Kept(ctx, tx, sinks)
		return err
	})
	return kept, err
}
