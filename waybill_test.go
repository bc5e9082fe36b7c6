package waybill_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/alerts"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/schedule"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

type (
	orderPlaced struct{ Order, Product string }
	paymentDue  struct{ Order string }
	shipped     struct{ Order string }
)

// onEach runs a test on each database.
func onEach(t *testing.T, test func(t *testing.T, db *sql.DB, o *waybill.Outbox)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		db, err := postgres.OpenDB(postgrestest.DSN(t))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		test(t, db, waybill.Postgres(db, waybill.PostgresConfig{}))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		db, err := sqlite.OpenDB(filepath.Join(t.TempDir(), "shop.db"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		test(t, db, waybill.SQLite(db, waybill.SQLiteConfig{}))
	})
}

// happened records the calls of handlers, in order.
type happened struct {
	mu   sync.Mutex
	list []string
}

func (h *happened) add(format string, a ...any) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, fmt.Sprintf(format, a...))
	return len(h.list)
}

func TestAChainOfHandlers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sql.DB, o *waybill.Outbox) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var h happened
		waybill.Register[orderPlaced](o, "order.placed", waybill.Key(func(p orderPlaced) string { return p.Order }), waybill.Aliases("OrderPlaced"))
		waybill.Register[paymentDue](o, "payment.due")
		waybill.Register[shipped](o, "order.shipped")
		waybill.HandleTx(o, "payments", func(ctx context.Context, tx *sql.Tx, p orderPlaced) error {
			h.add("pay %s", p.Order)
			return o.Publish(ctx, tx, paymentDue{p.Order})
		}).Parallelism.Threshold = 2
		waybill.HandleTx(o, "warehouse", func(ctx context.Context, tx *sql.Tx, p paymentDue) error {
			h.add("reserve %s", p.Order)
			return o.Publish(ctx, tx, waybill.With(shipped(p), waybill.Metadata("by", "post")))
		})
		waybill.Handle(o, "mails", func(_ context.Context, s shipped) error {
			h.add("mail %s", s.Order)
			return nil
		})
		o.Deliver("archive", sinks.Func(func(_ context.Context, d *waybill.Delivery) (waybill.Receipt, error) {
			if n := h.add("archive %s", d.Metadata.Get("by")); n == 4 {
				stop()
			}
			return "kept", nil
		}), "order.shipped").Start = "oldest"

		require.NoError(t, o.Migrate(ctx))
		require.NoError(t, o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return o.Publish(ctx, tx, waybill.With(orderPlaced{"o-1", "kite"}, waybill.ID("n-1")))
		}))
		ended := make(chan error, 1)
		go func() { ended <- o.Run(ctx) }()
		require.Eventually(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.list) == 4 }, time.Minute, time.Millisecond)
		stop()
		require.NoError(t, <-ended)
		require.Equal(t, []string{"pay o-1", "reserve o-1"}, h.list[:2])
		require.ElementsMatch(t, []string{"mail o-1", "archive post"}, h.list[2:])
		require.NotNil(t, o.Publisher())
		require.NotNil(t, o.Forwarder())
		first, err := o.Inbox().Once(t.Context(), db, "payments", "n-1", func(context.Context, *sql.Tx) error { return nil })
		require.NoError(t, err)
		require.False(t, first, "the id is stored under the sink's name")
	})
}

func TestAUnitOfWorkMapsDomainEventsAndAChainInheritsMetadata(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		type tenant struct{}
		type placed struct{ order string }
		type viewed struct{}
		var h happened
		woken := make(chan struct{}, 9)
		o.Publishing.Wake = func() { woken <- struct{}{} }
		o.Publishing.Metadata = func(ctx context.Context) map[string]string {
			name, _ := ctx.Value(tenant{}).(string)
			if cause := notification.Cause(ctx); cause != nil {
				name = cause.Metadata.Get(notification.MetadataTenant)
			}
			return map[string]string{notification.MetadataTenant: name}
		}
		waybill.Register[orderPlaced](o, "order.placed")
		waybill.Register[shipped](o, "order.shipped")
		waybill.Map(o, func(_ context.Context, e placed) ([]any, error) { return []any{orderPlaced{Order: e.order}}, nil })
		waybill.Ignore[viewed](o)
		waybill.HandleTx(o, "warehouse", func(ctx context.Context, tx *sql.Tx, p orderPlaced) error {
			var order waybill.Recorder
			order.Record(viewed{}, shipped{p.Order})
			unit := o.Publisher().NewUnit()
			unit.Track(&order)
			return unit.Publish(ctx, tx)
		})
		o.Deliver("archive", sinks.Func(func(_ context.Context, d *waybill.Delivery) (waybill.Receipt, error) {
			h.add("%s for %s", d.Type, d.Metadata.Get(notification.MetadataTenant))
			stop()
			return "", nil
		}), "order.shipped")
		require.NoError(t, o.Migrate(ctx))

		var aggregate waybill.Recorder
		aggregate.Record(viewed{}, placed{"o-1"})
		require.NoError(t, o.InUnit(context.WithValue(ctx, tenant{}, "acme"), func(_ context.Context, _ *sql.Tx, u *waybill.Unit) error {
			u.Track(&aggregate)
			return nil
		}))
		require.Empty(t, aggregate.Events())
		<-woken
		require.NoError(t, o.Run(ctx))
		require.Equal(t, []string{"order.shipped for acme"}, h.list)
		require.Panics(t, func() { waybill.Ignore[placed](o) }, "the outbox is open")
	})
}

func TestHandlersOfSeveralTypesShareASinkAndComeBeforeTheTypes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var h happened
		waybill.Handle(o, "mails", func(_ context.Context, p orderPlaced) error { h.add("placed %s", p.Order); return nil })
		waybill.Handle(o, "mails", func(_ context.Context, s shipped) error { h.add("shipped %s", s.Order); stop(); return nil })
		require.NoError(t, o.Migrate(ctx))
		require.ErrorIs(t, o.Open(ctx), registry.ErrUnregistered)
		waybill.Register[orderPlaced](o, "order.placed", waybill.Key(func(p orderPlaced) string { return p.Order }))
		waybill.Register[shipped](o, "order.shipped", waybill.Key(func(s shipped) string { return s.Order }))
		require.NoError(t, o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return o.Publish(ctx, tx, orderPlaced{Order: "o-1"}, shipped{"o-1"})
		}))
		require.NoError(t, o.Run(ctx))
		require.Equal(t, []string{"placed o-1", "shipped o-1"}, h.list)
	})
}

// ofAnOrder is implemented by orderPlaced and shipped.
type ofAnOrder interface{ about() string }

func (p orderPlaced) about() string { return "placed " + p.Order }
func (s shipped) about() string     { return "shipped " + s.Order }

func TestAHandlerOfManyGetsACollection(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var h happened
		digest := waybill.HandleMany(o, "digest", func(_ context.Context, all []ofAnOrder) error {
			var texts []string
			for _, one := range all {
				texts = append(texts, one.about())
			}
			h.add("%s", strings.Join(texts, ", "))
			stop()
			return nil
		})
		digest.Collect.By, digest.Collect.Wait, digest.Collect.Size = "payload.Order", time.Hour, 3
		waybill.Register[orderPlaced](o, "order.placed")
		waybill.Register[paymentDue](o, "payment.due")
		waybill.Register[shipped](o, "order.shipped")
		require.NoError(t, o.Migrate(ctx))
		require.NoError(t, o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return o.Publish(ctx, tx, orderPlaced{Order: "o-1"}, orderPlaced{Order: "o-2"}, paymentDue{"o-1"}, shipped{"o-1"}, shipped{"o-1"})
		}))
		require.NoError(t, o.Run(ctx))
		require.Equal(t, []string{"placed o-1, shipped o-1, shipped o-1"}, h.list)
	})
}

// inCents has its method on the pointer.
type inCents struct{ Cents int }

func (c *inCents) cents() int { return c.Cents }

func TestATypeAndItsPointerAreTheSame(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var h happened
		note := func(format string, a ...any) error {
			if h.add(format, a...) == 10 {
				stop()
			}
			return nil
		}
		waybill.Register[*orderPlaced](o, "order.placed", waybill.Key(func(p orderPlaced) string { return p.Order }))
		waybill.Register[shipped](o, "order.shipped", waybill.Key(func(p *shipped) string { return p.Order }))
		waybill.Register[inCents](o, "in.cents")
		waybill.Handle(o, "values", func(_ context.Context, n orderPlaced) error { return note("value %s", n.Order) })
		waybill.Handle(o, "values", func(_ context.Context, n shipped) error { return note("value %s", n.Order) })
		waybill.Handle(o, "pointers", func(_ context.Context, n *orderPlaced) error { return note("pointer %s", n.Order) })
		waybill.Handle(o, "pointers", func(_ context.Context, n *shipped) error { return note("pointer %s", n.Order) })
		waybill.HandleMany(o, "many", func(_ context.Context, all []interface{ cents() int }) error { return note("cents %d", all[0].cents()) })
		require.NoError(t, o.Migrate(ctx))
		require.NoError(t, o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return o.Publish(ctx, tx, orderPlaced{Order: "a"}, &orderPlaced{Order: "b"}, shipped{"c"}, &shipped{"d"}, inCents{1}, &inCents{2})
		}))
		require.NoError(t, o.Run(ctx))
		require.ElementsMatch(t, []string{
			"value a", "value b", "value c", "value d", "pointer a", "pointer b", "pointer c", "pointer d", "cents 1", "cents 2",
		}, h.list)
	})
}

func TestATypeIsNotRegisteredTogetherWithItsPointer(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		waybill.Register[orderPlaced](o, "order.placed")
		waybill.Register[*orderPlaced](o, "placed.order")
		require.ErrorContains(t, o.Open(t.Context()), `it is already "order.placed", which waybill_test.orderPlaced and *waybill_test.orderPlaced share`)
	})
}

func TestASinkOfHandlersForOneDoesNotCollectAll(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		waybill.Register[shipped](o, "order.shipped")
		mails := waybill.Handle(o, "mails", func(context.Context, shipped) error { return nil })
		mails.Collect.By, mails.Collect.Wait = "payload.Order", time.Minute
		require.NoError(t, o.Migrate(t.Context()))
		require.ErrorContains(t, o.Open(t.Context()), "cannot deliver several notifications as one")
	})
}

func TestAllMistakesAreErrorsOfOpen(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		require.NoError(t, o.Migrate(t.Context()))
		waybill.Register[orderPlaced](o, "order placed")
		waybill.Handle(o, "mails", func(context.Context, shipped) error { return nil })
		o.Deliver("mails", sinks.Func(nil), "order.*")
		err := o.Open(t.Context())
		require.ErrorContains(t, err, `type name "order placed"`)
		require.ErrorIs(t, err, registry.ErrUnregistered)
		require.ErrorContains(t, err, `sink "mails" is declared twice: use two names`)
		require.ErrorIs(t, o.Publish(t.Context(), nil, shipped{}), waybill.ErrNotOpen)
		waybill.Register[paymentDue](o, "payment.due")
		waybill.Handle(o, "both", func(context.Context, paymentDue) error { return nil })
		waybill.HandleTx(o, "both", func(context.Context, *sql.Tx, paymentDue) error { return nil })
		require.ErrorContains(t, o.Open(t.Context()), `sink "both" has handlers from both Handle and HandleTx: use two names`)
		require.Nil(t, o.Publisher())
	})
}

func TestARouteMayHaveACondition(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var h happened
		waybill.Register[orderPlaced](o, "order.placed")
		o.Deliver("kites", sinks.Func(func(_ context.Context, d *waybill.Delivery) (waybill.Receipt, error) {
			h.add("%s", d.Payload)
			stop()
			return "", nil
		}), "order.placed")
		o.Route("order.placed", waybill.Rule{Sink: "kites", When: `payload.Product == "kite"`}) // instead of the sink's route
		require.NoError(t, o.Migrate(ctx))
		require.NoError(t, o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return o.Publish(ctx, tx, orderPlaced{"o-1", "ball"}, orderPlaced{"o-2", "kite"})
		}))
		require.NoError(t, o.Run(ctx))
		require.Equal(t, []string{`{"Order":"o-2","Product":"kite"}`}, h.list)
		require.ErrorContains(t, o.Run(ctx), "an outbox runs only once")
	})
}

func TestADeclarationAfterOpenPanics(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		err := o.Open(t.Context())
		require.ErrorIs(t, err, store.ErrNotMigrated)
		require.ErrorContains(t, err, "or call Migrate")
		require.NoError(t, o.Migrate(t.Context()))
		require.NoError(t, o.Open(t.Context()), "the second call succeeds")
		require.NoError(t, o.Open(t.Context()), "again")
		require.PanicsWithError(t, waybill.ErrOpen.Error(), func() { waybill.Register[orderPlaced](o, "order.placed") })
		require.ErrorContains(t, o.Run(t.Context()), "there is nothing to run")
		require.Nil(t, o.Forwarder())
	})
}

func TestOpenReturnsTheErrorsOfTheForwarderAndOfSchedules(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		require.NoError(t, o.Migrate(t.Context()))
		waybill.Register[orderPlaced](o, "order.placed")
		waybill.Handle(o, "mails", func(context.Context, orderPlaced) error { return waybill.Permanent(errors.New("never")) })
		o.Route("order.paid", waybill.Rule{Sink: "mails"})
		o.Schedule("daily", waybill.Cron("0 9 * *", "Nowhere"), nil)
		err := o.Run(t.Context())
		require.ErrorIs(t, err, route.ErrNoType)
		require.ErrorIs(t, err, schedule.ErrConfig, "reported together with other errors")
		for _, want := range []string{"4 fields", "Nowhere", "Make is not set"} {
			require.ErrorContains(t, err, want)
		}
	})
}

func TestHandlersGetTheNotificationsOfSchedules(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		require.NoError(t, o.Migrate(ctx))
		waybill.Register[shipped](o, "order.shipped")
		var h happened
		waybill.Handle(o, "printer", func(_ context.Context, s shipped) error {
			if h.add("%s", s.Order) == 2 {
				stop()
			}
			return nil
		}).Parallelism.Threshold = 1
		o.Schedule("hourly", waybill.Cron("0 * * * *", "Europe/Berlin"), func(context.Context, time.Time) (any, error) { return nil, nil })
		o.Schedule("often", waybill.Every(time.Second), func(_ context.Context, tick time.Time) (any, error) {
			return shipped{tick.Format(time.RFC3339)}, nil
		}).Missed = schedule.All
		require.NoError(t, o.Run(ctx))
		first, err := time.Parse(time.RFC3339, h.list[0])
		require.NoError(t, err)
		require.Contains(t, h.list, first.Add(time.Second).Format(time.RFC3339))
	})
}

func TestHandlersGetAlertsOfOtherSinks(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sql.DB, o *waybill.Outbox) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		require.NoError(t, o.Migrate(ctx))
		_, err := db.ExecContext(ctx, `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt)
			VALUES ('printer', 1, 0, 'i', 'order.shipped', 1, 'k', '2026-01-01T00:00:00.000000Z', '{}', '{}', 'dead', 1)`)
		require.NoError(t, err)
		waybill.Register[shipped](o, "order.shipped")
		waybill.Handle(o, "printer", func(context.Context, shipped) error { return nil })
		var h happened
		waybill.Handle(o, "ops", func(_ context.Context, a alerts.Raised) error {
			h.add("%s of %s: %s", a.Cause, a.Sink, a.Text)
			stop()
			return nil
		})
		waybill.Handle(o, "ops", func(context.Context, alerts.Cleared) error { return nil })
		o.Alerts(waybill.Alerts{To: waybill.To("ops"), Dead: true})
		require.NoError(t, o.Run(ctx))
		require.Equal(t, []string{"dead of printer: printer: 1 delivery dead"}, h.list)
	})
}

func TestMistakesOfAlertsAreErrorsOfOpen(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		require.NoError(t, o.Migrate(t.Context()))
		o.Alerts(waybill.Alerts{To: waybill.To("ops"), Stalled: time.Second})
		require.ErrorContains(t, o.Open(t.Context()), "alerts.stalled is 1s: use at least 15s")
	})
}

func TestAlertsNeedSinks(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		require.NoError(t, o.Migrate(t.Context()))
		o.Alerts(waybill.Alerts{To: waybill.To("ops")})
		require.ErrorContains(t, o.Open(t.Context()), "alerts need sinks")
		waybill.Register[shipped](o, "order.shipped")
		waybill.Handle(o, "mails", func(context.Context, shipped) error { return nil })
		require.ErrorIs(t, o.Open(t.Context()), route.ErrUnknownSink)
	})
}

func TestScheduledNotificationsAreCancelledAndUniqueOnesPublishedOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sql.DB, o *waybill.Outbox) {
		ctx := t.Context()
		waybill.Register[orderPlaced](o, "order.placed", waybill.Key(func(p orderPlaced) string { return p.Order }))
		_, err := o.CancelID(ctx, nil, "n-1")
		require.ErrorIs(t, err, waybill.ErrNotOpen)
		_, err = o.CancelKey(ctx, nil, "order.placed", "o-1")
		require.ErrorIs(t, err, waybill.ErrNotOpen)
		require.NoError(t, o.Migrate(ctx))
		tomorrow := waybill.DeliverAt(time.Now().Add(24 * time.Hour))
		require.NoError(t, o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return o.Publish(ctx, tx, waybill.With(orderPlaced{"o-1", "kite"}, waybill.ID("n-1"), tomorrow, waybill.Unique("o-1", time.Hour)),
				waybill.With(orderPlaced{"o-2", "kite"}, tomorrow))
		}))
		require.NoError(t, o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			byID, err := o.CancelID(ctx, tx, "n-1")
			require.NoError(t, err)
			byKey, err := o.CancelKey(ctx, tx, "order.placed", "o-2")
			require.NoError(t, err)
			require.Equal(t, []int{1, 1}, []int{byID, byKey})
			require.ErrorIs(t, o.Publish(ctx, tx, waybill.With(orderPlaced{"o-1", "kite"}, waybill.Unique("o-1", time.Hour))), waybill.ErrDuplicate)
			_, err = o.CancelKey(ctx, tx, "order.palced", "o-1")
			require.ErrorIs(t, err, registry.ErrUnregistered)
			require.ErrorContains(t, err, `"order.palced"; the registered types are order.placed`)
			return nil
		}))
		var cancelled int
		require.NoError(t, db.QueryRowContext(ctx, `SELECT count(*) FROM outbox_cancelled`).Scan(&cancelled))
		require.Equal(t, 2, cancelled, "the duplicate did not prevent the commit")
	})
}

func TestEndpointsOfCustomersAreCreatedInTheApplicationsTransactions(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sql.DB, o *waybill.Outbox) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var h happened
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			h.add("%s %v", r.URL.Path, r.Header.Get("Webhook-Signature") != "")
			stop()
		}))
		t.Cleanup(server.Close)
		waybill.Register[orderPlaced](o, "order.placed")
		hooks, err := webhooks.New(sinks.Instance{Types: o.Types()}, webhooks.Config{
			ClientConfig: httpsink.ClientConfig{AllowHTTP: true, Guard: httpsink.Guard{Mode: httpsink.GuardOff}},
		})
		require.NoError(t, err)
		o.Deliver("customers", hooks, "order.*")
		require.NoError(t, o.Migrate(ctx))
		require.Nil(t, o.Endpoints(), "before Open")
		require.NoError(t, o.Open(ctx))
		create := func(path string, result error) error {
			return o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				_, _, err := o.Endpoints().In(tx).Create(ctx, webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: server.URL + path}})
				return errors.Join(err, o.Publish(ctx, tx, waybill.With(orderPlaced{Order: path}, waybill.Metadata("tenant", "acme"))), result)
			})
		}
		rolledBack := errors.New("rolled back")
		require.ErrorIs(t, create("/lost", rolledBack), rolledBack)
		require.NoError(t, create("/kept", nil))

		require.NoError(t, o.Run(ctx))
		require.Equal(t, []string{"/kept true"}, h.list)
		all, err := o.Endpoints().List(t.Context(), webhooks.Query{})
		require.NoError(t, err)
		require.Len(t, all, 1)
		waiting, err := o.Endpoints().Waiting(t.Context(), "acme", all[0].ID) // by the name of the sink
		require.NoError(t, err)
		require.Empty(t, waiting)
	})
}
