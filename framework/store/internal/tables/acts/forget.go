package acts

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// Forget deletes what the outbox has of a sink; see store.Operator.
func (t *Acts) Forget(ctx context.Context, sink string) (store.Traces, error) {
	var traces store.Traces
	var at tables.Beginning
	var err error
	if t.run.Source == nil {
		at, err = t.run.Dialect.Beginning(ctx, time.Time{})
	}
	if err == nil {
		err = t.run.InTxOf(ctx, failpoint.Forget, []string{sink, store.SinkUnrouted}, func(tx *sql.Tx) (err error) {
			traces, err = t.forget(ctx, tx, sink, at)
			return err
		})
	}
	if err == nil && traces.None() {
		err = t.run.UnknownSink(ctx, t.run.DB, sink)
	}
	if err != nil {
		return store.Traces{}, t.run.Failed(err, "forget sink %s", sink)
	}
	return traces, nil
}

func (t *Acts) forget(ctx context.Context, tx *sql.Tx, sink string, at tables.Beginning) (store.Traces, error) {
	traces := store.Traces{Sink: sink}
	if sink == store.SinkPruner {
		return traces, nil
	}
	var owner sql.NullString
	if err := t.run.Row(ctx, tx, `SELECT max(owner) FROM {cursors} WHERE sink = ? AND lease_until > {now} {whole cursors parked receipts collections}`, sink).Scan(&owner); err != nil {
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
	if err := t.run.NoteUse(ctx, tx, sink); err != nil {
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
	_, err := t.run.Exec(ctx, tx, `DELETE FROM {collections} WHERE sink = ?`, sink)
	return traces, err
}
