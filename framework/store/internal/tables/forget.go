package tables

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// Traces counts what the outbox has of a sink; see store.Inspector.
func (t *Tables) Traces(ctx context.Context, sink string) (store.Traces, error) {
	traces, err := t.traces(ctx, sink)
	if err == nil && traces.None() {
		err = t.unknownSink(ctx, t.db, sink)
	}
	if err != nil {
		return store.Traces{}, t.failed(err, "look for sink %s", sink)
	}
	return traces, nil
}

func (t *Tables) traces(ctx context.Context, sink string) (store.Traces, error) {
	traces := store.Traces{Sink: sink}
	err := t.run.Row(ctx, t.db, `SELECT (SELECT count(*) FROM {cursors} WHERE sink = ? AND sink <> ?),
			(SELECT count(*) FROM {parked} WHERE sink = ?), (SELECT count(*) FROM {receipts} WHERE sink = ?)
		{whole cursors parked receipts}`,
		sink, store.SinkPruner, sink, sink).Scan(&traces.Cursors, &traces.Parked, &traces.Receipts)
	return traces, err
}

// unknownSink returns an error that names the known sinks. It does not search for sinks that have
// only receipts left.
func (t *Tables) unknownSink(ctx context.Context, q Querier, sink string) error {
	query, args := t.run.Render(SQL(`SELECT sink FROM {cursors} WHERE sink <> ? UNION SELECT sink FROM {parked} ORDER BY sink {whole cursors parked}`, store.SinkPruner))
	known, err := Texts(ctx, q, query, args...)
	switch {
	case err != nil:
		return err
	case len(known) == 0:
		return fmt.Errorf("%w %q: the outbox knows none yet", store.ErrUnknownSink, sink)
	}
	return fmt.Errorf("%w %q: the outbox knows %s", store.ErrUnknownSink, sink, strings.Join(known, ", "))
}

// Forget deletes what the outbox has of a sink; see store.Operator.
func (t *Tables) Forget(ctx context.Context, sink string) (store.Traces, error) {
	var traces store.Traces
	var at Beginning
	var err error
	if t.source == nil {
		at, err = t.dialect.Beginning(ctx, time.Time{})
	}
	if err == nil {
		err = t.inTxOf(ctx, []string{sink, store.SinkUnrouted}, func(tx *sql.Tx) (err error) {
			traces, err = t.forget(ctx, tx, sink, at)
			return err
		})
	}
	if err == nil && traces.None() {
		err = t.unknownSink(ctx, t.db, sink)
	}
	if err != nil {
		return store.Traces{}, t.failed(err, "forget sink %s", sink)
	}
	return traces, nil
}

func (t *Tables) forget(ctx context.Context, tx *sql.Tx, sink string, at Beginning) (store.Traces, error) {
	traces := store.Traces{Sink: sink}
	if sink == store.SinkPruner {
		return traces, nil
	}
	var owner sql.NullString
	if err := t.run.Row(ctx, tx, `SELECT max(owner) FROM {cursors} WHERE sink = ? AND lease_until > {now} {whole cursors parked receipts}`, sink).Scan(&owner); err != nil {
		return traces, err
	}
	if owner.Valid {
		return traces, fmt.Errorf("%w: %s", store.ErrLeaseHeld, owner.String)
	}
	if sink != store.SinkUnrouted {
		if err := t.leaveUnrouted(ctx, tx, sink, at); err != nil {
			return traces, err
		}
	}
	if err := t.noteUse(ctx, tx, sink); err != nil {
		return traces, err
	}
	for _, table := range []struct {
		name    string
		deleted *int64
	}{{"cursors", &traces.Cursors}, {"parked", &traces.Parked}, {"receipts", &traces.Receipts}} {
		var err error
		if *table.deleted, err = t.run.Exec(ctx, tx, `DELETE FROM {`+table.name+`} WHERE sink = ?`, sink); err != nil {
			return traces, err
		}
	}
	return traces, nil
}
