package admin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

// exported returns the ids of an export, with their receipts as id/sink.
func (o *outbox) exported(t *testing.T, r admin.ExportRequest) ([]string, admin.Exporting) {
	t.Helper()
	ids := []string{}
	done, err := o.Export(t.Context(), r, func(e *admin.Exported) error {
		ids = append(ids, e.ID)
		for _, receipt := range e.Receipts {
			ids = append(ids, e.ID+"/"+receipt.Sink)
		}
		return nil
	}, nil)
	require.NoError(t, err)
	return ids, done
}

// deliver settles everything for a sink and archives receipts of the ids.
func (o *outbox) deliver(t *testing.T, sink string, ids ...string) {
	t.Helper()
	var receipts []store.Receipt
	for _, id := range ids {
		var offset int64
		require.NoError(t, o.db.QueryRowContext(t.Context(), `SELECT "offset" FROM outbox WHERE id = $1`, id).Scan(&offset))
		receipts = append(receipts, store.Receipt{Offset: offset, ID: id, Receipt: "http 202", Attempt: 2, DeliveredAt: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)})
	}
	o.settle(t, sink, func(c *store.Checkpoint) { c.Receipts = receipts })
}

func (o *outbox) publishAt(t *testing.T, id, typ string, at time.Time) {
	t.Helper()
	_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, payload, occurred_on) VALUES ($1, $2, '{"n": 1}', $3)`,
		id, typ, at.UTC().Format("2006-01-02T15:04:05.000000Z"))
	require.NoError(t, err)
}

func TestExportReturnsThePeriodWithItsReceipts(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		midnight := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		o.publishAt(t, "before", "order.placed", midnight.Add(-time.Microsecond*100))
		o.publishAt(t, "first", "order.placed", midnight)
		o.publishAt(t, "paid", "order.paid", midnight.Add(time.Hour))
		o.publishAt(t, "other", "customer.moved", midnight.Add(2*time.Hour))
		o.publishAt(t, "after", "order.placed", midnight.Add(24*time.Hour))
		o.deliver(t, "web", "before", "first", "other")
		o.deliver(t, "mail", "first")

		day := admin.ExportRequest{From: midnight, To: midnight.Add(24 * time.Hour)}
		ids, done := o.exported(t, day)
		require.Equal(t, []string{"first", "first/mail", "first/web", "paid", "other", "other/web"}, ids)
		oldest := done.Oldest
		done.Oldest = nil
		require.Equal(t, admin.Exporting{Rows: 3, Receipts: 3, Offset: 4, UpTo: 5}, done)
		require.EqualValues(t, 1, oldest.Offset)

		ids, _ = o.exported(t, admin.ExportRequest{})
		require.Len(t, ids, 5+4)
		byType := day
		byType.Types = []string{"order.placed", "customer.*"}
		ids, _ = o.exported(t, byType)
		require.Equal(t, []string{"first", "first/mail", "first/web", "other", "other/web"}, ids)
		byType.Types = []string{"order.placed", "*"}
		ids, _ = o.exported(t, byType)
		require.Len(t, ids, 6)
		bySink := day
		bySink.Sinks = []string{"mail"}
		ids, done = o.exported(t, bySink)
		require.Equal(t, []string{"first", "first/mail"}, ids)
		require.EqualValues(t, 1, done.Rows)

		_, err := o.db.ExecContext(t.Context(), `DELETE FROM outbox WHERE id IN ('before', 'first')`)
		require.NoError(t, err)
		_, done = o.exported(t, day)
		require.True(t, done.Gone, "retention has removed rows")
		_, done = o.exported(t, admin.ExportRequest{From: midnight.Add(2 * time.Hour)})
		require.False(t, done.Gone)
	})
}

func TestExportOmitsRowsThatAreNotCommittedWhenItBegins(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		const rows = 2500 // three pages
		tx, err := o.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }() // does nothing after the commit
		for n := range rows {
			_, err := tx.ExecContext(t.Context(), `INSERT INTO outbox (id, type, payload) VALUES ($1, 't', '{}')`, fmt.Sprint("n-", n))
			require.NoError(t, err)
		}
		require.NoError(t, tx.Commit())
		open, err := o.db.BeginTx(t.Context(), nil) // SQLite's only writer
		require.NoError(t, err)
		defer func() { _ = open.Rollback() }() // does nothing after the commit
		_, err = open.ExecContext(t.Context(), `INSERT INTO outbox (id, type, payload) VALUES ('open', 't', '{}')`)
		require.NoError(t, err)

		var ids []string
		done, err := o.Export(t.Context(), admin.ExportRequest{}, func(e *admin.Exported) error {
			if ids = append(ids, e.ID); len(ids) == 1 {
				require.NoError(t, open.Commit())
				o.publish(t, "late", "t", "")
			}
			return nil
		}, nil)
		require.NoError(t, err)
		require.EqualValues(t, rows, done.Rows)
		slices.Sort(ids)
		require.Len(t, slices.Compact(ids), rows, "each once")
		require.NotContains(t, ids, "open")
		require.NotContains(t, ids, "late")
	})
}

func TestExportRefusesInvalidRequests(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.publish(t, "a", "t", "")
		never := func(*admin.Exported) error { t.Error("a row"); return nil }
		now := time.Now()
		for _, r := range []admin.ExportRequest{{Types: []string{"a b"}}, {Types: []string{""}}, {From: now, To: now}, {From: now, To: now.Add(-time.Second)}} {
			_, err := o.Export(t.Context(), r, never, nil)
			require.ErrorIs(t, err, admin.ErrFilter, "%+v", r)
		}
		_, err := o.Export(t.Context(), admin.ExportRequest{Sinks: []string{"mial"}}, never, nil)
		require.ErrorIs(t, err, store.ErrUnknownSink)

		full := errors.New("the disk is full")
		_, err = o.Export(t.Context(), admin.ExportRequest{}, func(*admin.Exported) error { return full }, nil)
		require.ErrorIs(t, err, full)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = o.Export(ctx, admin.ExportRequest{}, never, nil)
		require.ErrorIs(t, err, context.Canceled)
	})
}
