package waybill_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// BenchmarkPublish compares the ways to publish one notification: in a transaction without a database,
// and in an SQLite file, with one transaction for each.
func BenchmarkPublish(b *testing.B) {
	db, err := sqlite.OpenDB(filepath.Join(b.TempDir(), "shop.db"))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[shipped](o, "order.shipped")
	waybill.Map(o, func(_ context.Context, e orderPlaced) ([]any, error) { return []any{shipped{e.Order}}, nil })
	require.NoError(b, o.Migrate(b.Context()))
	require.NoError(b, o.Open(b.Context()))
	p := o.Publisher()
	n, aggregate := shipped{"o-1"}, new(outbox.Recorder)
	unit := func(ctx context.Context, tx outbox.Tx, event any) error {
		u := p.NewUnit()
		aggregate.Record(event)
		u.Track(aggregate)
		err := u.Publish(ctx, tx)
		u.Committed()
		return err
	}
	for _, way := range []struct {
		name    string
		publish func(ctx context.Context, tx outbox.Tx) error
	}{
		{"publisher", func(ctx context.Context, tx outbox.Tx) error { return p.Publish(ctx, tx, n) }},
		{"facade", func(ctx context.Context, tx outbox.Tx) error { return o.Publish(ctx, tx, n) }},
		{"event", func(ctx context.Context, tx outbox.Tx) error { return o.Publish(ctx, tx, orderPlaced{Order: "o-1"}) }},
		{"unit", func(ctx context.Context, tx outbox.Tx) error { return unit(ctx, tx, n) }},
		{"unit-event", func(ctx context.Context, tx outbox.Tx) error { return unit(ctx, tx, orderPlaced{Order: "o-1"}) }},
	} {
		b.Run("paper/"+way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := way.publish(b.Context(), paper{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("sqlite/"+way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				err := o.InTx(b.Context(), func(ctx context.Context, tx *sql.Tx) error { return way.publish(ctx, tx) })
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Publishing through the facade costs the same as calling the publisher.
func TestPublishingThroughTheFacadeAllocatesNothingMore(t *testing.T) { // not parallel: AllocsPerRun counts allocations of all goroutines
	db, err := sqlite.OpenDB(filepath.Join(t.TempDir(), "shop.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[shipped](o, "order.shipped")
	require.NoError(t, o.Migrate(t.Context()))
	require.NoError(t, o.Open(t.Context()))
	allocations := func(publish func(context.Context, outbox.Tx, ...any) error) float64 {
		return testing.AllocsPerRun(200, func() {
			if err := publish(t.Context(), paper{}, shipped{"o-1"}); err != nil {
				t.Fatal(err)
			}
		})
	}
	require.LessOrEqual(t, allocations(o.Publish), allocations(o.Publisher().Publish)+1) // 1 is for the race detector
}

// paper is a transaction without a database.
type paper struct{}

func (paper) ExecContext(context.Context, string, ...any) (sql.Result, error) { return nil, nil }
func (paper) Commit() error                                                   { return nil }
func (paper) Rollback() error                                                 { return nil }
