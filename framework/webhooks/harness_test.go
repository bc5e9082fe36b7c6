package webhooks_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/waybilltest"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// shop is an outbox with a sink for its customers' endpoints.
type shop struct {
	t         *testing.T
	db        *sql.DB
	store     webhooks.Store
	publisher *outbox.Publisher
	config    webhooks.Config
	endpoints *webhooks.Endpoints
	forwarder forwarder.Config
	also      *events // what else is routed
}

// local lets endpoints be on this machine.
var local = webhooks.Config{ClientConfig: httpsink.ClientConfig{AllowHTTP: true, Guard: httpsink.Guard{Mode: httpsink.GuardOff}}}

func onEachStore(t *testing.T, c webhooks.Config, test func(t *testing.T, s *shop)) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		db, s := outboxtest.PostgreSQL(t, outboxtest.DSN(t), postgres.Config{})
		test(t, newShop(t, db, s, c))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		db, s := outboxtest.SQLite(t, outboxtest.File(t), sqlite.Config{})
		test(t, newShop(t, db, s, c))
	})
}

func newShop(t *testing.T, db *sql.DB, of webhooks.Store, c webhooks.Config) *shop {
	s := &shop{t: t, db: db, store: of, config: c, also: &events{}}
	var err error
	s.publisher, err = outbox.New(registry.New(), of, outbox.Config{Announcer: outbox.Silent})
	require.NoError(t, err)
	s.endpoints, err = webhooks.NewEndpoints(of, sinks.Instance{Name: "customers"}, c)
	require.NoError(t, err)
	sink, err := webhooks.New(sinks.Instance{Name: "customers"}, c)
	require.NoError(t, err)
	s.forwarder = forwarder.Config{
		Store: of, Logger: slog.New(slog.DiscardHandler),
		Routes: route.Routes{"order.*": route.To("customers"), webhooks.DisabledType: route.To("also")},
		Sinks:  map[string]forwarder.Sink{"customers": {Sink: sink}, "also": {Sink: s.also}},
	}
	return s
}

// events is a sink that remembers what it got.
type events struct {
	mu  sync.Mutex
	got []notification.Envelope
}

func (e *events) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got = append(e.got, *d.Envelope)
	return "", nil
}

// order is a notification of a tenant.
func order(tenant, id, key string) notification.Envelope {
	return notification.Envelope{
		ID: id, Type: "order.placed", Key: key, Payload: []byte(`{"order":"` + id + `","total":` + total(id) + `}`),
		OccurredOn: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Metadata: notification.Metadata{"tenant": tenant},
	}
}

// total is 100 for ids that begin with "big".
func total(id string) string {
	if len(id) > 3 && id[:3] == "big" {
		return "100"
	}
	return "1"
}

func (s *shop) publish(envelopes ...notification.Envelope) {
	s.t.Helper()
	require.NoError(s.t, s.publisher.RunInTx(s.t.Context(), s.db, nil, func(ctx context.Context, tx *sql.Tx) error {
		return s.publisher.Append(ctx, tx, envelopes...)
	}))
}

func (s *shop) drain() {
	s.t.Helper()
	waybilltest.Drain(s.t, s.forwarder, waybilltest.AllowDead())
}

func (s *shop) advance(d time.Duration) {
	s.t.Helper()
	waybilltest.Advance(s.t, s.forwarder, d, waybilltest.AllowDead())
}

func (s *shop) create(tenant, url string, types ...string) (webhooks.Endpoint, string) {
	s.t.Helper()
	return s.createLike(tenant, webhooks.Settings{URL: url, Types: types})
}

func (s *shop) createLike(tenant string, like webhooks.Settings) (webhooks.Endpoint, string) {
	s.t.Helper()
	made, secret, err := s.endpoints.Create(s.t.Context(), webhooks.NewEndpoint{Tenant: tenant, Settings: like})
	require.NoError(s.t, err)
	return made, secret
}

// customer is a server of a customer.
type customer struct {
	*httptest.Server
	mu      sync.Mutex
	got     []request
	answer  func(w http.ResponseWriter, r request) // nil: 200
	secrets []string                               // with which it verifies; none: not at all
}

// request is a request that a customer got.
type request struct {
	ID     string
	Header http.Header
	Body   body
	Raw    string
}

type body struct {
	Type      string          `json:"type"`
	Timestamp time.Time       `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

func newCustomer(t *testing.T) *customer {
	c := &customer{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		secrets := c.secrets
		c.mu.Unlock()
		var accept http.Handler = http.HandlerFunc(c.serve)
		if len(secrets) > 0 {
			verified, err := webhook.Receiver{Secrets: secrets}.Verify(accept)
			if !assert.NoError(t, err) {
				return
			}
			accept = verified
		}
		accept.ServeHTTP(w, r)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *customer) serve(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	got := request{ID: r.Header.Get("Webhook-Id"), Header: r.Header, Raw: string(raw)}
	_ = json.Unmarshal(raw, &got.Body)
	c.mu.Lock()
	c.got = append(c.got, got)
	answer := c.answer
	c.mu.Unlock()
	if answer != nil {
		answer(w, got)
	}
}

func (c *customer) verify(secrets ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secrets = secrets
}

func (c *customer) answers(answer func(w http.ResponseWriter, r request)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = answer
}

// status answers always with one status.
func status(code int) func(http.ResponseWriter, request) {
	return func(w http.ResponseWriter, _ request) { w.WriteHeader(code) }
}

// take returns what the customer got since the last call.
func (c *customer) take() []request {
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.got
	c.got = nil
	return got
}

// orders returns the ids of the orders in requests.
func orders(requests []request) (ids []string) {
	for _, r := range requests {
		var data struct{ Order string }
		_ = json.Unmarshal(r.Body.Data, &data)
		ids = append(ids, data.Order)
	}
	return ids
}
