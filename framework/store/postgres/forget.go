package postgres

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

var _ store.Forgetter = (*Store)(nil)

// Traces counts what the outbox has of a sink; see store.Forgetter.
func (s *Store) Traces(ctx context.Context, sink string) (store.Traces, error) {
	traces, err := s.traces(ctx, s.db, sink)
	if err == nil && traces.None() {
		err = s.unknownSink(ctx, sink)
	}
	if err != nil {
		return store.Traces{}, fmt.Errorf("look for sink %s: %w", sink, err)
	}
	return traces, nil
}

func (s *Store) traces(ctx context.Context, q querier, sink string) (store.Traces, error) {
	traces := store.Traces{Sink: sink}
	err := q.QueryRowContext(ctx,
		`SELECT (SELECT count(*) FROM `+s.sql.prefix+`_cursors WHERE sink = $1 AND sink <> $2),
			(SELECT count(*) FROM `+s.sql.prefix+`_parked WHERE sink = $1),
			(SELECT count(*) FROM `+s.sql.prefix+`_receipts WHERE sink = $1)`, sink, store.SinkPruner).
		Scan(&traces.Cursors, &traces.Parked, &traces.Receipts)
	return traces, err
}

// unknownSink is the error that names the sinks that there are. Those of which
// only receipts are left are not looked for.
func (s *Store) unknownSink(ctx context.Context, sink string) (err error) {
	rows, err := s.db.QueryContext(ctx,
		`SELECT sink FROM `+s.sql.prefix+`_cursors WHERE sink <> $1 UNION SELECT sink FROM `+s.sql.prefix+`_parked ORDER BY sink`,
		store.SinkPruner)
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

// Forget deletes what the outbox has of a sink; see store.Forgetter. Like a
// checkpoint it takes the cursors first, so the two cannot deadlock.
func (s *Store) Forget(ctx context.Context, sink string) (store.Traces, error) {
	traces, err := s.forget(ctx, sink)
	if err != nil {
		return store.Traces{}, fmt.Errorf("forget sink %s: %w", sink, err)
	}
	if traces.None() {
		return store.Traces{}, fmt.Errorf("forget sink %s: %w", sink, s.unknownSink(ctx, sink))
	}
	return traces, nil
}

func (s *Store) forget(ctx context.Context, sink string) (traces store.Traces, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return traces, err
	}
	defer func() { _ = tx.Rollback() }() // of no effect behind the commit
	var owner sql.NullString
	err = tx.QueryRowContext(ctx,
		`SELECT max(owner) FILTER (WHERE lease_until > clock_timestamp())
		FROM (SELECT owner, lease_until FROM `+s.sql.prefix+`_cursors WHERE sink = $1 FOR UPDATE) leases`, sink).Scan(&owner)
	switch {
	case err != nil:
		return traces, err
	case owner.Valid && sink != store.SinkPruner:
		return traces, fmt.Errorf("%w: %s", store.ErrLeaseHeld, owner.String)
	}
	traces.Sink = sink
	for table, deleted := range map[string]*int64{"_cursors": &traces.Cursors, "_parked": &traces.Parked, "_receipts": &traces.Receipts} {
		result, err := tx.ExecContext(ctx, `DELETE FROM `+s.sql.prefix+table+` WHERE sink = $1 AND sink <> $2`, sink, store.SinkPruner)
		if err != nil {
			return traces, err
		}
		if *deleted, err = result.RowsAffected(); err != nil {
			return traces, err
		}
	}
	return traces, tx.Commit()
}
