package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

var _ store.Forgetter = (*Store)(nil)

// Traces counts what the outbox has of a sink; see store.Forgetter.
func (s *Store) Traces(ctx context.Context, sink string) (store.Traces, error) {
	traces := store.Traces{Sink: sink}
	err := s.db.QueryRowContext(ctx,
		`SELECT (SELECT count(*) FROM `+s.prefix+`_cursors WHERE sink = ?1 AND sink <> ?2),
			(SELECT count(*) FROM `+s.prefix+`_parked WHERE sink = ?1),
			(SELECT count(*) FROM `+s.prefix+`_receipts WHERE sink = ?1)`, sink, store.SinkPruner).
		Scan(&traces.Cursors, &traces.Parked, &traces.Receipts)
	if err == nil && traces.None() {
		err = s.unknownSink(ctx, sink)
	}
	if err != nil {
		return store.Traces{}, fmt.Errorf("look for sink %s: %w", sink, err)
	}
	return traces, nil
}

// unknownSink is the error that names the sinks that there are. Those of which
// only receipts are left are not looked for.
func (s *Store) unknownSink(ctx context.Context, sink string) (err error) {
	rows, err := s.db.QueryContext(ctx,
		`SELECT sink FROM `+s.prefix+`_cursors WHERE sink <> ? UNION SELECT sink FROM `+s.prefix+`_parked ORDER BY sink`, store.SinkPruner)
	if err != nil {
		return err
	}
	defer func() { err = closeRows(rows, err) }()
	var known []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		known = append(known, name)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return store.UnknownSink(sink, known)
}

// Forget deletes what the outbox has of a sink; see store.Forgetter.
func (s *Store) Forget(ctx context.Context, sink string) (store.Traces, error) {
	traces, err := s.forget(ctx, sink)
	if err == nil && traces.None() {
		err = s.unknownSink(ctx, sink)
	}
	if err != nil {
		return store.Traces{}, fmt.Errorf("forget sink %s: %w", sink, err)
	}
	return traces, nil
}

// forget deletes before it looks at the leases, since a transaction that reads
// first may not get to write.
func (s *Store) forget(ctx context.Context, sink string) (traces store.Traces, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return traces, err
	}
	defer func() { _ = tx.Rollback() }() // of no effect behind the commit
	traces.Sink = sink
	for _, of := range []struct {
		table   string
		deleted *int64
	}{{"_parked", &traces.Parked}, {"_receipts", &traces.Receipts}} {
		result, err := tx.ExecContext(ctx, `DELETE FROM `+s.prefix+of.table+` WHERE sink = ?`, sink)
		if err != nil {
			return traces, err
		}
		if *of.deleted, err = result.RowsAffected(); err != nil {
			return traces, err
		}
	}
	var owner sql.NullString
	err = tx.QueryRowContext(ctx, `SELECT max(owner) FROM `+s.prefix+`_cursors WHERE sink = ? AND sink <> ? AND lease_until > `+now,
		sink, store.SinkPruner).Scan(&owner)
	switch {
	case err != nil:
		return traces, err
	case owner.Valid:
		return traces, fmt.Errorf("%w: %s", store.ErrLeaseHeld, owner.String)
	}
	result, err := tx.ExecContext(ctx, `DELETE FROM `+s.prefix+`_cursors WHERE sink = ? AND sink <> ?`, sink, store.SinkPruner)
	if err != nil {
		return traces, err
	}
	if traces.Cursors, err = result.RowsAffected(); err != nil {
		return traces, err
	}
	return traces, tx.Commit()
}
