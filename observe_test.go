package waybill_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

// addresses sends the addresses at which a program serves.
type addresses struct {
	slog.Handler
	found chan string
}

func (a addresses) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "serving the dashboard, metrics and probes" {
		r.Attrs(func(at slog.Attr) bool { a.found <- at.Value.String(); return false })
	}
	return nil
}

func (a addresses) Enabled(context.Context, slog.Level) bool { return true }

func get(t *testing.T, url string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

func TestAnOutboxServesACompleteDashboardWithMetricsAndProbes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		found, handled := make(chan string, 1), make(chan bool, 1)
		o.Config.Logger = slog.New(addresses{slog.DiscardHandler, found})
		waybill.Register[orderPlaced](o, "order.placed")
		waybill.Handle(o, "warehouse", func(context.Context, orderPlaced) error { handled <- true; return nil }).Retry.MaxAttempts = 7
		o.Deliver("customers", webhooks.Config{}, "order.*")
		o.Observe("127.0.0.1:0")
		require.NoError(t, o.Migrate(ctx))
		require.NoError(t, o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return o.Publish(ctx, tx, waybill.With(orderPlaced{Order: "o-17"}, waybill.Metadata("tenant", "acme")))
		}))
		ended := make(chan error, 1)
		go func() { ended <- o.Run(ctx) }()
		at := "http://" + <-found
		<-handled

		for path, want := range map[string][]string{
			"/livez":                   {"live"},
			"/metrics":                 {`waybill_published_total{type="order.placed"} 1`, "waybill_build_info"},
			"/types":                   {"order.placed", "customers", "warehouse"},
			"/types?type=order.placed": {"Product"},
			"/api/v1/doctor":           {"the tables have the version of this program", "2 sinks, 2 routes"},
			"/config":                  {"max_attempts: 7", "order.*", "lease: 15s"},
			"/endpoints":               {"Endpoints"},
			"/api/v1/sinks":            {"warehouse"},
			"/api/v1/types":            {"order.placed"},
		} {
			status, text := get(t, at+path)
			require.Equal(t, http.StatusOK, status, "%s: %s", path, text)
			for _, w := range want {
				require.Contains(t, text, w, path)
			}
		}
		require.Eventually(t, func() bool { status, _ := get(t, at+"/readyz"); return status == http.StatusOK }, 30*time.Second, 10*time.Millisecond)
		stop()
		require.NoError(t, <-ended)
		_, err := net.Dial("tcp", strings.TrimPrefix(at, "http://"))
		require.Error(t, err, "it is closed")
	})
}

func TestADashboardInAServerOfTheProgramLetsInWhomTheProgramNames(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		waybill.Register[orderPlaced](o, "order.placed")
		waybill.Handle(o, "warehouse", func(context.Context, orderPlaced) error { return nil })
		mux := http.NewServeMux()
		mux.Handle("/admin/outbox/", o.Dashboard(waybill.DashboardConfig{Prefix: "/admin/outbox", Authorize: func(r *http.Request) (waybill.User, error) {
			if r.URL.Query().Get("session") != "ada" {
				return waybill.User{}, errors.New("not logged in")
			}
			return waybill.User{Name: "ada", Role: waybill.Operator}, nil
		}}))
		mux.Handle("/metrics", o.Monitor())
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		status, _ := get(t, server.URL+"/admin/outbox/types?session=ada")
		require.Equal(t, http.StatusServiceUnavailable, status, "before Open")
		require.NoError(t, o.Migrate(ctx))
		require.NoError(t, o.Open(ctx))
		ended := make(chan error, 1)
		go func() { ended <- o.Run(ctx) }()
		status, text := get(t, server.URL+"/admin/outbox/types?session=ada")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, text, "order.placed")
		status, _ = get(t, server.URL+"/admin/outbox/types")
		require.Equal(t, http.StatusForbidden, status)
		_, text = get(t, server.URL+"/metrics")
		require.Contains(t, text, `sink="warehouse"`)
		stop()
		require.NoError(t, <-ended)
	})
}

func TestADashboardThatNamesNobodyIsNotOpened(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		handler := o.Dashboard(waybill.DashboardConfig{Prefix: "/admin"})
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/admin/", nil))
		require.Equal(t, http.StatusForbidden, answer.Code)
		require.ErrorContains(t, o.Open(t.Context()), `the dashboard at "/admin": it would be open to everyone: set Authorize, or Auth.Users`)
	})
}

func TestMistakesOfWhatObservesAreErrorsOfOpenAndRun(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		taken := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(taken.Close)
		settings := o.Observe(taken.Listener.Addr().String())
		settings.Auth.Users = map[string]waybill.Login{"ada": {}}
		require.NoError(t, o.Migrate(t.Context()))
		require.ErrorContains(t, o.Open(t.Context()), "observe: dashboard: auth.users.ada.password is missing")
		settings.Auth.Users = map[string]waybill.Login{"ada": {Password: "secret"}}
		require.NoError(t, o.Open(t.Context()))
		require.ErrorContains(t, o.Run(t.Context()), "observe: listen tcp "+taken.Listener.Addr().String())
	})
}

func TestAProgramShowsAndRequeuesWhatItsOutboxHolds(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		require.Nil(t, o.Admin("ada"), "before Open")
		require.Nil(t, o.Store(), "before Open")
		var broken atomic.Bool
		broken.Store(true)
		waybill.Register[orderPlaced](o, "order.placed")
		waybill.Handle(o, "warehouse", func(context.Context, orderPlaced) error {
			if broken.Load() {
				return waybill.Permanent(errors.New("no such product"))
			}
			stop()
			return nil
		})
		require.NoError(t, o.Migrate(ctx))
		require.NoError(t, o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return o.Publish(ctx, tx, waybill.With(orderPlaced{Order: "o-17"}, waybill.ID("id-1")))
		}))
		ended := make(chan error, 1)
		go func() { ended <- o.Run(ctx) }()
		a := o.Admin("ada")
		require.Eventually(t, func() bool {
			counts, err := a.Count(ctx, admin.Filter{})
			return err == nil && len(counts) == 1
		}, 30*time.Second, 5*time.Millisecond)
		broken.Store(false)
		status, err := a.Status(ctx, o.Routing().Routes)
		require.NoError(t, err)
		require.NotEmpty(t, status)
		why, err := a.Why(ctx, "id-1", o.Routing())
		require.NoError(t, err)
		require.NotEmpty(t, why)
		plan, err := a.Requeue(ctx, admin.Filter{Sink: "warehouse"})
		require.NoError(t, err)
		action, err := plan.Run(ctx, nil)
		require.NoError(t, err)
		require.EqualValues(t, 1, action.Count)
		require.Equal(t, "ada", action.Who)
		require.NoError(t, <-ended)
	})
}

func TestASinkIsBuiltOfItsConfiguration(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		got := make(chan string, 1)
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Authorization"); stop() }))
		t.Cleanup(server.Close)
		waybill.Register[orderPlaced](o, "order.placed")
		o.Deliver("partner", httpsink.Config{URL: server.URL, Bearer: "t0ken"}, "order.*").Retry.MaxAttempts = 3
		require.NoError(t, o.Migrate(ctx))
		require.NoError(t, o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return o.Publish(ctx, tx, orderPlaced{Order: "o-17"}) }))
		require.NoError(t, o.Run(ctx))
		require.Equal(t, "Bearer t0ken", <-got)
	})
}

func TestOpenNamesTheSinkAndTheKeyOfEachMistakeInAConfiguration(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		o.Deliver("mail", email.Config{From: "shop"}, "order.*")
		o.Deliver("partner", &httpsink.Config{}, "*")
		o.Deliver("odd", 17, "*")
		err := o.Open(t.Context())
		for _, want := range []string{`sink "mail": smtp`, `sink "mail": from`, `sink "mail": templates`, `sink "partner": url`, `sink "odd": int is neither a sinks.Sink nor the configuration of one`} {
			require.ErrorContains(t, err, want)
		}
	})
}

func TestFunctionsCanAskForTheirDelivery(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ *sql.DB, o *waybill.Outbox) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var h happened
		seen := func(ctx context.Context) {
			d := waybill.DeliveryFrom(ctx)
			if h.add("%s %s %d %s %s %s", d.Sink, d.ID, d.Attempt, d.Key, d.Metadata.Get("tenant"), d.OccurredOn.UTC().Format(time.DateOnly)) == 3 {
				stop()
			}
		}
		waybill.Register[orderPlaced](o, "order.placed", waybill.Key(func(p orderPlaced) string { return p.Order }))
		waybill.Handle(o, "one", func(ctx context.Context, _ orderPlaced) error { seen(ctx); return nil })
		waybill.HandleTx(o, "tx", func(ctx context.Context, _ *sql.Tx, _ orderPlaced) error { seen(ctx); return nil })
		many := waybill.HandleMany(o, "many", func(ctx context.Context, _ []orderPlaced) error {
			require.Nil(t, waybill.DeliveryFrom(ctx))
			c := waybill.CollectionFrom(ctx)
			require.Len(t, c.Members, 1)
			require.NotEmpty(t, c.ID)
			if h.add("%s %s %d", c.Sink, c.Members[0].ID, c.Attempt) == 3 {
				stop()
			}
			return nil
		})
		many.Collect.Wait, many.Collect.Size = time.Hour, 1
		require.NoError(t, o.Migrate(ctx))
		require.NoError(t, o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return o.Publish(ctx, tx, waybill.With(orderPlaced{Order: "o-17"}, waybill.ID("id-1"), waybill.Metadata("tenant", "acme")))
		}))
		require.NoError(t, o.Run(ctx))
		today := time.Now().UTC().Format(time.DateOnly)
		require.ElementsMatch(t, []string{"one id-1 1 o-17 acme " + today, "tx id-1 1 o-17 acme " + today, "many id-1 1"}, h.list)
		require.Nil(t, waybill.DeliveryFrom(t.Context()))
		require.Nil(t, waybill.CollectionFrom(t.Context()))
	})
}
