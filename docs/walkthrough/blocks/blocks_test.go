// Package blocks runs the blocks of docs/scheduled.md, docs/schedules.md, docs/alerts.md and docs/routes.md.
package blocks

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/alerts"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/schedule"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/waybilltest"
	"github.com/waybill-go/waybill/registry"
)

type reminderDue struct{ Order string }

// in runs f in a transaction of a new outbox that knows reminders, and returns how many f has published.
func in(t *testing.T, f func(ctx context.Context, publisher *outbox.Publisher, tx *sql.Tx) error) int {
	t.Helper()
	types := registry.New()
	require.NoError(t, registry.Register[reminderDue](types, "order.reminder", registry.Key(func(r reminderDue) string { return r.Order })))
	o := waybilltest.New(t, types)
	require.NoError(t, o.Publisher.RunInTx(t.Context(), o.DB, nil, func(ctx context.Context, tx *sql.Tx) error { return f(ctx, o.Publisher, tx) }))
	return len(o.Envelopes())
}

var (
	reminder = reminderDue{Order: "o-17"}
	tomorrow = time.Now().Add(24 * time.Hour)
)

func later(ctx context.Context, publisher *outbox.Publisher, tx *sql.Tx) error {
	err := publisher.Publish(ctx, tx, outbox.With(reminder, outbox.ID("reminder-o-17"), outbox.DeliverAt(tomorrow)))
	return err
}

func byID(ctx context.Context, publisher *outbox.Publisher, tx *sql.Tx) (int, error) {
	n, err := publisher.CancelID(ctx, tx, "reminder-o-17")
	return n, err
}

func byKey(ctx context.Context, publisher *outbox.Publisher, tx *sql.Tx) (int, error) {
	n, err := publisher.CancelKey(ctx, tx, "order.reminder", "o-17") // all scheduled notifications of this type and key
	return n, err
}

func once(ctx context.Context, publisher *outbox.Publisher, tx *sql.Tx) error {
	err := publisher.Publish(ctx, tx, outbox.With(reminder, outbox.Unique("o-17", 24*time.Hour)))
	if err != nil && !errors.Is(err, outbox.ErrDuplicate) {
		return err
	}
	return nil
}

func TestWhatIsScheduledCanBeCancelled(t *testing.T) {
	t.Parallel()
	for _, cancel := range []func(context.Context, *outbox.Publisher, *sql.Tx) (int, error){byID, byKey} {
		in(t, func(ctx context.Context, publisher *outbox.Publisher, tx *sql.Tx) error {
			require.NoError(t, later(ctx, publisher, tx))
			n, err := cancel(ctx, publisher, tx)
			require.Equal(t, 1, n)
			return err
		})
	}
}

func TestASecondOneIsNotPublished(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1, in(t, func(ctx context.Context, publisher *outbox.Publisher, tx *sql.Tx) error {
		return errors.Join(once(ctx, publisher, tx), once(ctx, publisher, tx))
	}))
}

type (
	ReportDue  struct{ Day time.Time }
	CleanupDue struct{}
)

func TestSchedulesAreDeclared(t *testing.T) {
	t.Parallel()
	db, err := sqlite.OpenDB(filepath.Join(t.TempDir(), "shop.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[ReportDue](o, "report.due")
	waybill.Register[CleanupDue](o, "cleanup.due")
	o.Schedule("daily-report", waybill.Cron("0 9 * * MON-FRI", "Europe/Berlin"),
		func(ctx context.Context, tick time.Time) (any, error) { return ReportDue{Day: tick}, nil })
	o.Schedule("cleanup", waybill.Every(15*time.Minute),
		func(ctx context.Context, tick time.Time) (any, error) { return CleanupDue{}, nil }).Missed = schedule.Skip
	require.NoError(t, o.Migrate(t.Context()))
	require.NoError(t, o.Open(t.Context()))
}

func page(context.Context, string, string) error { return nil }

func TestAlertsAreDeclared(t *testing.T) {
	t.Parallel()
	db, err := sqlite.OpenDB(filepath.Join(t.TempDir(), "shop.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Handle(o, "ops", func(ctx context.Context, a alerts.Raised) error { return page(ctx, a.Text, a.Command) })
	waybill.Handle(o, "ops", func(ctx context.Context, a alerts.Cleared) error { return page(ctx, a.Text, a.Command) })
	o.Alerts(waybill.Alerts{To: waybill.To("ops"), Every: 24 * time.Hour})
	require.NoError(t, o.Migrate(t.Context()))
	require.NoError(t, o.Open(t.Context()))
}

func TestARouteHasAConditionAndAPayload(t *testing.T) {
	t.Parallel()
	routes :=
		route.Routes{"order.placed": append(route.To("events"), route.Rule{
			Sink:    "partner",
			When:    `payload.total > 100 && metadata.tenant == "acme"`,
			Payload: map[string]string{"order": "payload.id", "sum": "payload.total", "at": "occurred_on"},
		})}
	_, err := route.New(routes, []string{"events", "partner"}, nil)
	require.NoError(t, err)
}
