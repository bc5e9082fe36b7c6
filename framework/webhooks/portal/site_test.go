package portal_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/framework/webhooks/portal"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

const prefix = "/account/webhooks"

type orderPlaced struct {
	OrderID string  `json:"order_id"`
	Total   float64 `json:"total"`
}

type orderShipped struct {
	OrderID string `json:"order_id"`
}

type auditDone struct{}

// shopTypes returns the types of the application of the tests.
func shopTypes(t *testing.T) *registry.Registry {
	t.Helper()
	types := registry.New()
	require.NoError(t, errors.Join(
		registry.Register[orderPlaced](types, "order.placed"), registry.Register[orderShipped](types, "order.shipped"), registry.Register[auditDone](types, "audit.done"),
	))
	return types
}

// lines collects log lines.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// site serves a portal on an empty outbox. It compares each request to the API, and its answer, with the
// description.
type site struct {
	t         *testing.T
	db        *sql.DB
	store     *sqlite.Store
	endpoints *webhooks.Endpoints
	url       string // with the prefix
	log       *lines
	router    routers.Router
	client    *http.Client
}

// newSite serves a portal. A request is that of the tenant in its header X-Tenant.
func newSite(t *testing.T, change ...func(*portal.Config, *webhooks.Config)) *site {
	t.Helper()
	db, outbox := outboxtest.SQLite(t, outboxtest.File(t), sqlite.Config{})
	_, err := outbox.Cut(t.Context(), "customers", 1, store.StartOldest)
	require.NoError(t, err)
	s := &site{t: t, db: db, store: outbox, log: &lines{}, client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	c := portal.Config{
		Prefix: prefix, Logger: slog.New(slog.NewTextHandler(s.log, nil)),
		Authorize: func(r *http.Request) (string, error) {
			tenant := r.Header.Get("X-Tenant")
			if tenant == "" {
				return "", portal.ErrUnauthenticated
			}
			return tenant, nil
		},
	}
	of := webhooks.Config{ClientConfig: httpsink.ClientConfig{AllowHTTP: true, Guard: httpsink.Guard{Mode: httpsink.GuardOff}}}
	for _, change := range change {
		change(&c, &of)
	}
	s.endpoints, err = webhooks.NewEndpoints(outbox, sinks.Instance{Name: "customers", Types: shopTypes(t)}, of)
	require.NoError(t, err)
	handler, err := portal.New(s.endpoints, c)
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	s.url = server.URL + c.Prefix
	a := s.ask("acme", http.MethodGet, "/api/openapi.json", "")
	if a.status != http.StatusOK {
		return s // no one is let in
	}
	document, err := openapi3.NewLoader().LoadFromData([]byte(a.text))
	require.NoError(t, err)
	require.NoError(t, document.Validate(t.Context()))
	s.router, err = legacy.NewRouter(document)
	require.NoError(t, err)
	return s
}

// create adds an endpoint of a tenant.
func (s *site) create(tenant string, like webhooks.Settings) webhooks.Endpoint {
	s.t.Helper()
	made, _, err := s.endpoints.Create(s.t.Context(), webhooks.NewEndpoint{Tenant: tenant, Settings: like})
	require.NoError(s.t, err)
	made, err = s.endpoints.Get(s.t.Context(), tenant, made.ID) // with the database's times
	require.NoError(s.t, err)
	return made
}

// attempt adds an attempt at an endpoint.
func (s *site) attempt(of webhooks.Endpoint, change ...func(*store.Attempt)) store.Attempt {
	s.t.Helper()
	id := notification.NewID()
	a := store.Attempt{
		ID: id, Endpoint: of.ID, EndpointCreatedAt: of.CreatedAt, Tenant: of.Tenant, Delivery: "n1_" + of.ID, Notification: "n1", Offset: 1, Type: "order.placed", Number: 1,
		At: time.Now().UTC().Truncate(time.Microsecond), Duration: 123 * time.Millisecond, Status: 200, Until: time.Now().Add(72 * time.Hour).UTC().Truncate(time.Microsecond),
		Request: store.Exchange{Header: map[string][]string{"Webhook-Id": {"n1"}}, Body: `{"type":"order.placed","data":{"order_id":"o-1"}}`},
		Answer:  store.Exchange{Header: map[string][]string{"Server": {"nginx"}}, Body: `{"ok":true}`},
	}
	for _, change := range change {
		change(&a)
	}
	require.NoError(s.t, s.store.AddAttempts(s.t.Context(), nil, []store.Attempt{a}))
	return a
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	text   string
	body   map[string]any // of the API
}

// get opens a page as acme.
func (s *site) get(path string) answer {
	s.t.Helper()
	return s.ask("acme", http.MethodGet, path, "")
}

// post sends a form as acme.
func (s *site) post(path string, form url.Values) answer {
	s.t.Helper()
	return s.ask("acme", http.MethodPost, path, form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
}

// call calls the API as acme. A body is JSON. headers has names and values in turn.
func (s *site) call(method, path, body string, headers ...string) answer {
	s.t.Helper()
	return s.callAs("acme", method, path, body, headers...)
}

func (s *site) callAs(tenant, method, path, body string, headers ...string) answer {
	s.t.Helper()
	if body != "" {
		headers = append([]string{"Content-Type", "application/json"}, headers...)
	}
	a := s.ask(tenant, method, "/api"+path, body, headers...)
	if a.text != "" && strings.Contains(a.header.Get("Content-Type"), "json") {
		require.NoError(s.t, json.Unmarshal([]byte(a.text), &a.body), a.text)
	}
	s.compare(tenant, method, "/api"+path, body, headers, a)
	return a
}

func (s *site) request(tenant, method, path, body string, headers []string) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	if tenant != "" {
		r.Header.Set("X-Tenant", tenant)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func (s *site) ask(tenant, method, path, body string, headers ...string) answer {
	s.t.Helper()
	response, err := s.client.Do(s.request(tenant, method, path, body, headers))
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, response.Body.Close()) }()
	text, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return answer{status: response.StatusCode, header: response.Header, text: string(text)}
}

// compare checks a request and its answer against the description. A refused request may be invalid.
func (s *site) compare(tenant, method, path, body string, headers []string, a answer) {
	s.t.Helper()
	if a.status >= 400 {
		require.Equal(s.t, "application/problem+json", a.header.Get("Content-Type"), a.text)
		require.EqualValues(s.t, a.status, a.body["status"])
	}
	r := s.request(tenant, method, path, body, headers)
	r.URL.Host, r.URL.Scheme, r.Host = "", "", ""
	found, parameters, err := s.router.FindRoute(r)
	if err != nil {
		require.GreaterOrEqual(s.t, a.status, 400, "%s %s: %v", method, path, err)
		return
	}
	options := &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}
	input := &openapi3filter.RequestValidationInput{Request: r, PathParams: parameters, Route: found, Options: options}
	if a.status < 400 {
		require.NoError(s.t, openapi3filter.ValidateRequest(context.Background(), input), "%s %s", method, path)
	}
	require.NoError(s.t, openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader([]byte(a.text))), Options: options,
	}), "%s %s: %s", method, path, a.text)
}

// receiver is a server of a customer, which gives one answer.
func receiver(t *testing.T, status int, header map[string]string, body string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/hooks"
}
