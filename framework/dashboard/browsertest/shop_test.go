package browsertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/sinks"
)

// deliver is a sink that is a function.
type deliver func(d *notification.Delivery) error

func (f deliver) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	return "", f(d)
}

// withShop forwards to several sinks: mail accepts everything, billing refuses wrong orders, stock
// fails temporarily, and partner cannot be reached.
func withShop(t *testing.T) func(*site, *dashboard.Target) {
	return func(s *site, target *dashboard.Target) {
		c := forwarder.Config{
			Store: s.store, Lanes: 4, Logger: slog.New(slog.DiscardHandler), Name: "shop-1", Lease: 3 * time.Second,
			Routes: route.Routes{"*": route.To("mail", "billing", "stock", "partner")},
			Sinks: map[string]forwarder.Sink{
				"mail": {Sink: deliver(func(*notification.Delivery) error { return nil })},
				"billing": {Sink: deliver(func(d *notification.Delivery) error {
					if d.Type == "order.wrong" {
						return sinks.Permanent(errors.New("422: no such account"))
					}
					return nil
				})},
				"stock": {Sink: deliver(func(d *notification.Delivery) error {
					if d.Type == "order.wrong" {
						return errors.New("timeout")
					}
					return nil
				}), Retry: forwarder.Retry{Initial: time.Hour, Max: time.Hour}},
				"partner": {Sink: deliver(func(*notification.Delivery) error {
					return sinks.Unavailable(errors.New("dial tcp 10.0.0.7:443: connect: connection refused"))
				})},
			},
		}
		f, err := forwarder.New(c)
		require.NoError(t, err)
		routes, err := route.New(c.Routes, []string{"mail", "billing", "stock", "partner"}, nil)
		require.NoError(t, err)
		target.Forwarder, target.Routing = f, admin.Routing{Routes: routes}
		ctx, stop := context.WithCancel(context.Background())
		var work sync.WaitGroup
		work.Go(func() {
			if err := f.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() {
			stop()
			work.Wait()
		})
	}
}

// withSinks writes sinks with a lane each, and a forwarder, as if one were running.
func withSinks(t *testing.T, sinks ...string) func(*site, *dashboard.Target) {
	return func(s *site, _ *dashboard.Target) {
		for _, sink := range sinks {
			s.cursors(t, sink, 1)
		}
		s.member(t, "host-0")
	}
}

// publish writes n orders with different keys.
func (s *site) publish(t *testing.T, n int, typ string) {
	t.Helper()
	_, err := s.db.ExecContext(t.Context(), `INSERT INTO outbox (type, key, payload) SELECT $1, 'order-' || i, '{}' FROM generate_series(1, $2) i`, typ, n)
	require.NoError(t, err)
}

// cursors writes a sink whose lanes a forwarder owns, as if one were running.
func (s *site) cursors(t *testing.T, sink string, lanes int) {
	t.Helper()
	_, err := s.db.ExecContext(t.Context(), `INSERT INTO outbox_cursors (sink, lane, lanes, owner, lease_until)
		SELECT $1::text, i, $2::int, 'host-' || i % 3, now() + interval '1 day' FROM generate_series(0, $2::int - 1) i`, sink, lanes)
	require.NoError(t, err)
}

// member writes a forwarder, as if one were running.
func (s *site) member(t *testing.T, name string) {
	t.Helper()
	_, err := s.db.ExecContext(t.Context(), `INSERT INTO outbox_forwarders (owner, sinks, live_until) VALUES ($1, '[]', now() + interval '1 day')`, name)
	require.NoError(t, err)
}

// park parks n dead deliveries of a sink.
func (s *site) park(t *testing.T, sink, typ, key, failure string, n int) {
	t.Helper()
	_, err := s.db.ExecContext(t.Context(), `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, last_error)
		SELECT $1, i, 0, 'id-' || i, $2, 1, $3, now(), '{}', '{}', 'dead', 1, $4 FROM generate_series(1, $5::int) i`, sink, typ, key, failure, n)
	require.NoError(t, err)
}

// eventually repeats a query until it returns a number.
func (s *site) eventually(t *testing.T, want int, query string, args ...any) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		err := s.db.QueryRowContext(t.Context(), query, args...).Scan(&n)
		return err == nil && n == want
	}, patience, 100*time.Millisecond, fmt.Sprintf("%s: %d", query, want))
}
