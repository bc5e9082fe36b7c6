package alerts_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/alerts"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/sinks"
)

func TestDeadDeliveriesRaiseOneAlertAndOneClear(t *testing.T) {
	onEachStore(t, func(b *box) {
		b.start()
		b.start()
		b.pass(time.Minute)
		require.Empty(b, b.alerts())
		b.kill("partner", 1)
		b.pass(time.Minute)
		b.kill("partner", 2)
		b.pass(10 * time.Minute)
		require.Equal(b, []string{"partner: 1 delivery dead"}, b.texts(), "without the error, which may repeat private data")
		b.revive()
		b.pass(10 * time.Minute)
		all := b.alerts()
		require.Equal(b, []string{"partner: 1 delivery dead", "over after 12m0s: partner: 2 deliveries dead"}, b.texts())
		require.Equal(b, notification.AlertRaised, all[0].Type)
		require.Equal(b, notification.AlertCleared, all[1].Type)
		require.Equal(b, "dead partner", all[0].Key)
		require.Equal(b, all[0].Key, all[1].Key)
		require.Equal(b, "waybill parked list --sink partner --state dead", all[0].Command)
		require.Equal(b, all[0].RaisedAt, all[1].RaisedAt)
		require.NotEmpty(b, all[0].Forwarder)
		b.kill("partner", 1)
		b.pass(10 * time.Minute)
		require.Len(b, b.alerts(), 3, "the next time")
	})
}

func TestAReminderComesWhileTheCauseLasts(t *testing.T) {
	onEachStore(t, func(b *box) {
		b.its.Every = 10 * time.Minute
		b.start()
		b.kill("partner", 1)
		b.pass(15 * time.Minute)
		b.kill("partner", 2)
		b.pass(10 * time.Minute)
		require.Equal(b, []string{"partner: 1 delivery dead", "for 10m0s: partner: 1 delivery dead", "for 20m0s: partner: 2 deliveries dead"}, b.texts())
		require.True(b, b.alerts()[1].Reminder)
		b.revive()
		b.pass(15 * time.Minute)
		require.Len(b, b.alerts(), 4)
	})
}

func TestAnAlertOutlivesTheProcessesThatRaisedIt(t *testing.T) {
	onEachStore(t, func(b *box) {
		stop := b.start()
		b.kill("partner", 1)
		b.pass(time.Minute)
		stop()
		b.pass(10 * time.Minute)
		stop = b.start()
		b.pass(time.Minute)
		require.Len(b, b.alerts(), 1)
		stop()
		b.revive()
		b.start()
		b.pass(2 * time.Minute)
		require.Len(b, b.alerts(), 2)
	})
}

func TestACauseThatComesBackWithinAMinuteIsTheSame(t *testing.T) {
	onEachStore(t, func(b *box) {
		b.start()
		b.kill("partner", 1)
		b.pass(time.Minute)
		b.revive()
		b.pass(30 * time.Second)
		b.kill("partner", 1)
		b.pass(10 * time.Minute)
		require.Equal(b, []string{"partner: 1 delivery dead"}, b.texts())
	})
}

// breaker sends a heartbeat of a forwarder whose breaker is open since a time; the zero time is closed.
func (b *box) breaker(since time.Time) {
	b.Helper()
	m := store.Member{Owner: "f1", Sinks: []string{"partner"}}
	if !since.IsZero() {
		m.States = map[string]store.SinkState{"partner": {BreakerOpen: true, OpenSince: since, Cause: "550 ada@shop.example is unknown"}}
	}
	require.NoError(b, b.store.Heartbeat(b.Context(), m, time.Hour))
}

func TestAnOpenBreakerRaisesAnAlertAfterItsTimeWithoutItsError(t *testing.T) {
	onEachStore(t, func(b *box) {
		b.its = settings.Alerts{To: b.its.To, BreakerOpen: 5 * time.Minute}
		b.start()
		b.breaker(time.Now())
		b.pass(4 * time.Minute)
		require.Empty(b, b.alerts())
		b.pass(2 * time.Minute)
		require.Equal(b, []string{"partner: breaker open since 2000-01-01 00:00:00Z at f1"}, b.texts())
		require.Equal(b, "f1", b.alerts()[0].Forwarder)
		b.breaker(time.Now()) // its forwarder has started again
		b.pass(4 * time.Minute)
		require.Len(b, b.alerts(), 1)
		b.breaker(time.Time{})
		b.pass(2 * time.Minute)
		require.Len(b, b.alerts(), 2)
	})
}

// publish publishes an order.
func (b *box) publish(c alerts.Config) {
	b.Helper()
	require.NoError(b, c.Publisher.RunInTx(b.Context(), b.db, nil, func(ctx context.Context, tx *sql.Tx) error {
		return c.Publisher.Append(ctx, tx, notification.Envelope{Type: "order.placed", Version: 1, Payload: []byte(`{}`)})
	}))
}

func TestASinkThatSettlesNothingIsStalled(t *testing.T) {
	onEachStore(t, func(b *box) {
		b.its = settings.Alerts{To: b.its.To, Stalled: 2 * time.Minute}
		c := b.config()
		_, err := b.store.Cut(b.Context(), "partner", 1, store.StartOldest)
		require.NoError(b, err)
		b.start()
		b.pass(10 * time.Minute)
		require.Empty(b, b.alerts(), "nothing is pending")
		b.publish(c)
		b.pass(time.Minute)
		require.Empty(b, b.alerts())
		b.publish(c)
		b.pass(2 * time.Minute)
		require.Equal(b, []string{"partner: nothing was delivered since 2000-01-01 00:10:15Z, with 2 pending"}, b.texts())
	})
}

func TestATransactionThatStaysOpenRaisesAnAlert(t *testing.T) {
	onEachStore(t, func(b *box) {
		b.its = settings.Alerts{To: b.its.To, HeldTransaction: time.Minute}
		b.start()
		b.store.held.Store(int64(59 * time.Second))
		b.pass(time.Minute)
		require.Empty(b, b.alerts())
		b.store.held.Store(int64(90 * time.Second))
		b.pass(time.Minute)
		require.Equal(b, []string{"a transaction that has written to the log has been open for 1m30s"}, b.texts())
		b.store.held.Store(0)
		b.pass(2 * time.Minute)
		require.Len(b, b.alerts(), 2)
		require.Equal(b, "held_transaction", b.alerts()[1].Key)
	})
}

func TestADisabledEndpointRaisesAnAlertUnlessAPersonDidIt(t *testing.T) {
	onEachStore(t, func(b *box) {
		b.its = settings.Alerts{To: b.its.To, DisabledEndpoint: true}
		b.start()
		for id, reason := range map[string]string{"ep_1": "it answered 410 Gone", "ep_2": store.DisabledByPerson, "ep_3": ""} {
			b.endpoint(id, reason)
		}
		b.pass(time.Minute)
		require.Equal(b, []string{"hooks: endpoint ep_1 of tenant acme is disabled: it answered 410 Gone"}, b.texts())
		require.Equal(b, "waybill endpoints show ep_1 --tenant acme", b.alerts()[0].Command)
		deleted, err := b.store.DeleteEndpoint(b.Context(), nil, "acme", "ep_1")
		require.NoError(b, err)
		require.True(b, deleted)
		b.pass(2 * time.Minute)
		require.Len(b, b.alerts(), 2)
	})
}

func TestManyDisabledEndpointsShareAnAlert(t *testing.T) {
	onEachStore(t, func(b *box) {
		b.its = settings.Alerts{To: b.its.To, DisabledEndpoint: true, Every: 10 * time.Minute}
		b.start()
		b.endpoint("ep_00", "it answered 410 Gone")
		b.pass(time.Minute)
		for i := range 30 {
			b.endpoint(fmt.Sprintf("ep_%02d", i+1), "it failed for 120h0m0s")
		}
		b.pass(time.Minute)
		require.Equal(b, []string{"hooks: endpoint ep_00 of tenant acme is disabled: it answered 410 Gone", "hooks: 30 endpoints are disabled because they failed"}, b.texts())
		require.Equal(b, "waybill endpoints list --troubled", b.alerts()[1].Command)
		b.endpoint("ep_31", "it answered 410 Gone")
		for i := range 25 {
			_, err := b.store.DeleteEndpoint(b.Context(), nil, "acme", fmt.Sprintf("ep_%02d", i+1))
			require.NoError(b, err)
		}
		b.pass(5 * time.Minute)
		require.Len(b, b.alerts(), 2, "six are left of those that share one")
		b.pass(6 * time.Minute)
		require.Contains(b, b.texts()[3], "6 endpoints are disabled", "the reminder has the present count")
		for i := range 6 {
			_, err := b.store.DeleteEndpoint(b.Context(), nil, "acme", fmt.Sprintf("ep_%02d", i+26))
			require.NoError(b, err)
		}
		b.pass(2 * time.Minute)
		require.Equal(b, notification.AlertCleared, b.alerts()[4].Type)
		b.endpoint("ep_32", "it answered 410 Gone")
		b.pass(time.Minute)
		require.Contains(b, b.texts()[5], "endpoint ep_32", "it has one alone again")
	})
}

func TestAnAlertAboutTheOnlySinkIsLogged(t *testing.T) {
	onEachStore(t, func(b *box) {
		b.its.To = route.To("ops")
		stop := b.start()
		b.kill("ops", 1)
		b.kill("partner", 2)
		b.pass(time.Minute)
		stop()
		require.Contains(b, b.logs.String(), "an alert reaches no one")
		require.Contains(b, b.logs.String(), `msg="raised an alert" type=waybill.alert.raised`)
		table, err := route.New(b.its.Routes(nil), []string{"ops"}, nil)
		require.NoError(b, err)
		for _, p := range b.alerts() {
			admitted, err := table.To("ops").Admits(b.Context(), &notification.Envelope{Type: p.Type, Version: 1, Payload: []byte(`{"sink": "` + p.Sink + `"}`)})
			require.NoError(b, err)
			require.Equal(b, p.Sink == "partner", admitted)
		}
	})
}

func TestAJudgeGoesOnAfterTheDatabaseWasAway(t *testing.T) {
	onEachStore(t, func(b *box) {
		b.start()
		b.kill("partner", 1)
		b.pass(time.Minute)
		b.store.away.Store(true)
		b.pass(10 * time.Minute)
		b.store.away.Store(false)
		b.revive()
		b.pass(2 * time.Minute)
		require.Len(b, b.alerts(), 2)
	})
}

func TestAJudgeThatFrozeInALookChangesNothing(t *testing.T) {
	onEachStore(t, func(b *box) {
		b.kill("partner", 1)
		frozen := make(chan struct{})
		c := b.config()
		c.Store = freezing{b.store, frozen}
		slow, err := alerts.New(c)
		require.NoError(b, err)
		ended := make(chan error, 1)
		go func() { _, err := slow.Look(b.Context()); ended <- err }()
		frozen <- struct{}{}
		b.start()
		b.pass(time.Second)
		require.Len(b, b.alerts(), 1)
		frozen <- struct{}{}
		require.NoError(b, <-ended)
		require.Len(b, b.alerts(), 1)
	})
}

// freezing is a store in which a look stands still after its sample.
type freezing struct {
	*clocked
	frozen chan struct{}
}

func (f freezing) Membership(ctx context.Context) (store.Membership, error) {
	<-f.frozen
	<-f.frozen
	return f.clocked.Membership(ctx)
}

func TestAJudgeRefusesWrongSettings(t *testing.T) {
	onEachStore(t, func(b *box) {
		_, err := alerts.New(alerts.Config{})
		require.ErrorIs(b, err, alerts.ErrConfig)
		c := b.config()
		c.Settings = settings.Alerts{Stalled: time.Second, Every: time.Second, Dashboard: "https://ada:secret@waybill.example/"}
		_, err = alerts.New(c)
		for _, text := range []string{"alerts.to is missing", "alerts.stalled is 1s: use at least 15s", "alerts.every is 1s", "alerts.dashboard is not an address"} {
			require.ErrorContains(b, err, text)
		}
		require.NotContains(b, err.Error(), "secret")
	})
}

// TestASinkThatIsDownIsStalledAlthoughItsLeaseIsRenewed runs a real forwarder, in real time.
func TestASinkThatIsDownIsStalledAlthoughItsLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	db, s := outboxtest.PostgreSQL(t, outboxtest.DSN(t), postgres.Config{})
	b := &box{T: t, db: db, store: &clocked{Store: s}, logs: new(logs), its: settings.Alerts{To: route.To("ops")}}
	down := sinks.Func(func(context.Context, *notification.Delivery) (notification.Receipt, error) {
		return "", sinks.Unavailable(errors.New("no route to host"))
	})
	up := sinks.Func(func(context.Context, *notification.Delivery) (notification.Receipt, error) { return "", nil })
	f, err := forwarder.New(forwarder.Config{
		Store: s, Sinks: map[string]forwarder.Sink{"partner": {Sink: down}, "other": {Sink: up}}, Lease: time.Second, Lanes: 4,
		Routes: route.Routes{"order.placed": route.To("partner"), "order.moved": route.To("other")}, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	defer func() { stop(); require.NoError(t, <-ended) }()
	c := b.config()
	publish := func(typ string) {
		require.NoError(t, c.Publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
			return c.Publisher.Append(ctx, tx, notification.Envelope{Type: typ, Version: 1, Payload: []byte(`{}`)})
		}))
	}
	look := func() (partner store.SinkSample, leased time.Time) {
		sample, err := s.Sample(ctx, store.SampleQuery{Types: f.Takes()})
		require.NoError(t, err)
		for _, one := range sample.Sinks {
			if one.Sink == "partner" {
				for _, lane := range one.Lanes {
					if lane.Pending > 0 {
						leased = lane.LeaseUntil
					}
				}
				return one, leased
			}
		}
		return partner, leased
	}
	publish("order.placed")
	require.Eventually(t, func() bool { now, leased := look(); return now.Pending == 1 && !leased.IsZero() }, patience, 20*time.Millisecond)
	renew := func() {
		_, leased := look()
		publish("order.moved")
		require.Eventually(t, func() bool { _, until := look(); return until.After(leased) }, patience, 20*time.Millisecond)
	}
	renew() // its checkpoint may write the same place in another way
	before, _ := look()
	for range 3 {
		renew()
	}
	after, _ := look()
	require.Equal(t, before.Mark, after.Mark)
	require.Equal(t, 1, after.Pending)
}
