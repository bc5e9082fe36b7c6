package api_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/acts"
	"github.com/waybill-go/waybill/framework/dashboard/internal/api"
	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

const (
	prefix   = "/admin"
	patience = 30 * time.Second
)

var (
	viewer   = access.User{Name: "eve", Role: access.Viewer}
	operator = access.User{Name: "ada", Role: access.Operator}
)

// outboxStore is what the API and a forwarder need from an outbox.
type outboxStore interface {
	admin.Store
	store.Leases
	store.Deliveries
}

// outbox is a migrated outbox.
type outbox struct {
	store outboxStore
	db    *sql.DB
}

// onEach runs a test on an outbox in each database.
func onEach(t *testing.T, test func(t *testing.T, o *outbox)) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		db, s := outboxtest.PostgreSQL(t, outboxtest.DSN(t), postgres.Config{Receipts: true})
		test(t, &outbox{s, db})
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, onSQLite(t))
	})
}

func onSQLite(t *testing.T) *outbox {
	t.Helper()
	db, s := outboxtest.SQLite(t, outboxtest.File(t), sqlite.Config{Receipts: true})
	return &outbox{s, db}
}

func (o *outbox) publish(t *testing.T, id, typ, key, payload string) {
	t.Helper()
	_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, key, payload) VALUES ($1, $2, $3, $4)`, id, typ, key, payload)
	require.NoError(t, err)
}

// park makes a sink settle everything, parks deliveries, and releases its lane.
func (o *outbox) park(t *testing.T, sink string, parked ...store.Parked) {
	t.Helper()
	o.settle(t, sink, nil, parked)
}

// settle is like park, and adds receipts.
func (o *outbox) settle(t *testing.T, sink string, receipts []store.Receipt, parked []store.Parked) {
	t.Helper()
	lease := o.lease(t, sink)
	reader, err := o.store.NewReader(lease.Position, store.Filter{Slots: lease.Lane.Slots, Types: notification.AllTypes})
	require.NoError(t, err)
	to, err := o.store.Probe(t.Context())
	require.NoError(t, err)
	for caughtUp := false; !caughtUp; {
		page, err := reader.Next(t.Context(), to, 1000)
		require.NoError(t, err)
		if caughtUp = page.CaughtUp; caughtUp {
			require.NoError(t, o.store.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Hour, Position: page.End, Park: parked, Receipts: receipts}))
		}
	}
}

func (o *outbox) lease(t *testing.T, sink string) store.Lease {
	t.Helper()
	_, err := o.store.Cut(t.Context(), sink, 1, store.StartOldest)
	require.NoError(t, err)
	lease, err := o.store.Acquire(t.Context(), store.Lanes(sink, 1)[0], "f1", time.Hour)
	require.NoError(t, err)
	return lease
}

// dead returns a dead delivery of the sink mail.
func dead(offset int, key string) store.Parked {
	return store.Parked{
		Envelope: notification.Envelope{
			Offset: int64(offset), ID: fmt.Sprintf("n%d", offset), Type: "order.placed", Version: 1, Key: key, OccurredOn: time.Now().Add(-time.Hour), Payload: []byte(`{"secret": 1}`),
		},
		State: store.StateDead, Attempt: 3, LastError: "boom", FirstParkedAt: time.Now().Add(-time.Hour),
	}
}

func deads(n int) []store.Parked {
	all := make([]store.Parked, n)
	for i := range all {
		all[i] = dead(i+1, "")
	}
	return all
}

func routing(t *testing.T) admin.Routing {
	t.Helper()
	routes, err := route.New(route.Routes{"order.*": route.To("mail")}, []string{"mail"}, nil)
	require.NoError(t, err)
	return admin.Routing{Routes: routes}
}

// log collects log lines.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// site serves the API, and compares each request and answer with the description.
type site struct {
	url     string
	log     *log
	history *history.History
	router  routers.Router
}

// serve serves the API of an outbox; nil for none.
func serve(t *testing.T, show *target.Target) *site { return serveMasked(t, show, nil) }

// serveMasked serves the API with masks of payloads.
func serveMasked(t *testing.T, show *target.Target, hidden masks.Masks) *site {
	t.Helper()
	s := &site{log: &log{}}
	logger := slog.New(slog.NewTextHandler(s.log, nil))
	runner := acts.New(logger)
	var current target.Current
	if show != nil {
		current.Show(*show)
	}
	s.history = history.New(&current, logger)
	s.history.Begin()
	handler := http.StripPrefix(prefix+"/api/v1", api.New(api.Config{Target: &current, Acts: runner, History: s.history, Prefix: prefix, Logger: logger, Masks: hidden}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := map[string]access.User{"eve": viewer, "ada": operator}[r.Header.Get("X-User")]
		user.Address = "127.0.0.1"
		handler.ServeHTTP(w, r.WithContext(access.With(r.Context(), user)))
	}))
	t.Cleanup(func() {
		server.Close()
		runner.Close()
		s.history.Close()
	})
	s.url = server.URL
	document, err := openapi3.NewLoader().LoadFromData(s.get(t, "/openapi.json"))
	require.NoError(t, err)
	require.NoError(t, document.Validate(t.Context()))
	s.router, err = legacy.NewRouter(document)
	require.NoError(t, err)
	return s
}

func (s *site) get(t *testing.T, path string) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+prefix+"/api/v1"+path, http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, string(text))
	return text
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	text   string
	body   map[string]any
}

// into decodes the body.
func (a answer) into(t *testing.T, value any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(a.text), value), a.text)
}

// look and act send requests as the viewer and as the operator. look takes a new sample first. headers
// has names and values in turn.
func (s *site) look(t *testing.T, path string) answer {
	t.Helper()
	s.history.Renew()
	return s.do(t, viewer, http.MethodGet, path, "")
}

// inspect is look for an operator.
func (s *site) inspect(t *testing.T, path string) answer {
	t.Helper()
	s.history.Renew()
	return s.do(t, operator, http.MethodGet, path, "")
}

func (s *site) act(t *testing.T, path, body string, headers ...string) answer {
	t.Helper()
	return s.do(t, operator, http.MethodPost, path, body, headers...)
}

func (s *site) do(t *testing.T, user access.User, method, path, body string, headers ...string) answer {
	t.Helper()
	make := func() *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), method, s.url+prefix+"/api/v1"+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("X-User", user.Name)
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		return r
	}
	response, err := http.DefaultClient.Do(make())
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	a := answer{status: response.StatusCode, header: response.Header, text: string(text)}
	require.NoError(t, json.Unmarshal(text, &a.body), a.text)
	s.compare(t, make(), a)
	return a
}

// compare checks a request and its answer against the description. A refused request may be invalid.
func (s *site) compare(t *testing.T, r *http.Request, a answer) {
	t.Helper()
	kind := a.header.Get("Content-Type")
	if a.status >= 400 && !strings.Contains(r.URL.Path, "/health/") {
		require.Equal(t, "application/problem+json", kind)
		require.EqualValues(t, a.status, a.body["status"])
	}
	r.URL.Host, r.URL.Scheme, r.Host = "", "", ""
	found, parameters, err := s.router.FindRoute(r)
	if err != nil {
		require.GreaterOrEqual(t, a.status, 400, "%s %s: %v", r.Method, r.URL, err)
		return
	}
	options := &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}
	input := &openapi3filter.RequestValidationInput{Request: r, PathParams: parameters, Route: found, Options: options}
	if a.status < 400 {
		require.NoError(t, openapi3filter.ValidateRequest(context.Background(), input), "%s %s", r.Method, r.URL)
	}
	require.NoError(t, openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader([]byte(a.text))), Options: options,
	}), "%s %s: %s", r.Method, r.URL, a.text)
}
