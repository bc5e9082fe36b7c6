package pages

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/acts"
	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

func TestMain(m *testing.M) {
	if os.Getenv("WAYBILL_DASHBOARD_ROWS") == "" { // otherwise these times are measured
		pageTime, findTime = time.Minute, time.Minute // on a machine that stalls
	}
	code := m.Run()
	if err := postgrestest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// outbox is the outbox that the pages show.
type outbox struct {
	db    *sql.DB
	store admin.Store
}

// databases open an empty outbox of each kind.
var databases = map[string]func(t *testing.T) outbox{
	"postgres": func(t *testing.T) outbox {
		db, s := outboxtest.PostgreSQL(t, outboxtest.DSN(t), postgres.Config{})
		return outbox{db, s}
	},
	"sqlite": func(t *testing.T) outbox {
		db, s := outboxtest.SQLite(t, outboxtest.File(t), sqlite.Config{})
		return outbox{db, s}
	},
}

// endpoints manages the endpoints of the outbox.
func (o outbox) endpoints(t *testing.T) *webhooks.Endpoints {
	t.Helper()
	all, err := webhooks.NewEndpoints(o.store.(webhooks.Store), sinks.Instance{Name: "customers"}, webhooks.Config{})
	require.NoError(t, err)
	return all
}

func onEach(t *testing.T, test func(t *testing.T, o outbox)) {
	t.Helper()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// exec runs a statement that both databases understand.
func (o outbox) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	ctx := t.Context()
	if deadline, limited := t.Deadline(); limited { // a statement that takes too long must leave time to clean up
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-20*time.Second))
		defer cancel()
	}
	_, err := o.db.ExecContext(ctx, query, args...)
	require.NoError(t, err)
}

// newPages returns the pages of a target, after its first sample. A nil target means no outbox.
func newPages(t testing.TB, shown *target.Target) *Pages {
	t.Helper()
	var current target.Current
	if shown != nil {
		t.Cleanup(current.Show(*shown))
	}
	runner := acts.New(slog.New(slog.DiscardHandler))
	t.Cleanup(runner.Close)
	h := history.New(&current, slog.New(slog.DiscardHandler))
	h.Begin()
	t.Cleanup(h.Close)
	for l := (history.Snapshot{}); shown != nil && shown.Store != nil && l.At.IsZero() && l.Err == nil && t.Context().Err() == nil; {
		l = h.Snapshot(t.Context()) // waits for the sample
	}
	return New(Config{Target: &current, Acts: runner, History: h, Logger: slog.New(slog.DiscardHandler)})
}

// ask makes a request as a user with a role, and returns the status and the page.
func (p *Pages) ask(t testing.TB, role settings.Role, method, path string, form url.Values) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(access.With(t.Context(), access.User{Name: "ada", Role: role}), method, "http://localhost/", strings.NewReader(form.Encode()))
	u, err := url.Parse(path)
	if err != nil { // a server refuses such a path, for example one with a NUL
		return http.StatusBadRequest, ""
	}
	r.URL = u
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	body, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	return w.Code, string(body)
}

// hostile has texts that would break a page that does not escape them.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `javascript:alert(1)`, `'; DROP TABLE outbox; --`, `{{.Data}}`,
	"\u202eDELLACNAC", "../../etc/passwd", "%00", "a\nb", strings.Repeat("x", 250),
}

// wrong has invalid values of parameters.
var wrong = append([]string{"-1", "0", "99999999999999999999", "1e9", "\x00", "\xff\xfe", "unknown", strings.Repeat("y", 10_000)}, hostile...)

// parameters has names of parameters. No page reads some of them.
var parameters = []string{"q", "type", "status", "state", "sink", "key", "group", "id", "after", "before", "from", "to", "age", "reason", "error", "n"}

// hostileTarget returns an outbox full of hostile texts.
func hostileTarget(t *testing.T, o outbox) *target.Target {
	t.Helper()
	for i, text := range append(hostile, strings.Repeat("z", 10_000)) {
		short := text[:min(len(text), 200)]
		o.exec(t, `INSERT INTO outbox (type, key, payload, metadata) VALUES ($1, $2, '{"a": "<script>alert(1)</script>"}', '{"<script>alert(1)</script>": "<script>alert(1)</script>"}')`, short, short)
		o.exec(t, `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, last_error)
			VALUES ($1, $2, 1, $3, $3, 1, $3, '2026-01-02T03:04:05.000000Z', '{}', '{}', 'dead', 3, $4)`, short, 1000+i, short, text)
		o.exec(t, `INSERT INTO outbox_cursors (sink, lane, lanes) VALUES ($1, 0, 1)`, short)
		o.exec(t, `INSERT INTO outbox_schedules (name, id, spec, missed, last_tick) VALUES ($1, $1, $1, $1, '2026-01-02T03:04:05.000000Z')`, text)
		o.exec(t, `INSERT INTO outbox_forwarders (owner, sinks, running, live_until) VALUES ($1, '["<script>alert(1)</script>"]', '{"version": "<script>alert(1)</script>", "settings": "<script>alert(1)</script>"}', '2999-01-01T00:00:00.000000Z')`, short)
		o.exec(t, `INSERT INTO outbox_endpoints (id, tenant, url, description, types, only_if, private, rate, disabled_reason, trouble) VALUES ($1, $1, $2, $2, '["<script>alert(1)</script>"]', $2, $3, '', $2, $2)`,
			short, text, `{"secrets": [{"secret": "whsec_x"}], "headers": {"<script>alert(1)</script>": "x"}}`)
		o.exec(t, `INSERT INTO outbox_attempts (id, endpoint, endpoint_created_at, tenant, delivery, notification, log_offset, type, number, at, hour, duration, status, failed, error, request, answer, until)
			SELECT $1, $1, created_at, $1, $2, $2, 1, $2, 1, '2026-01-02T03:04:05.000000Z', 1, 1, 500, true, $2, '{}', '{}', '2999-01-01T00:00:00.000000Z' FROM outbox_endpoints WHERE id = $1`, short, text)
		o.exec(t, `INSERT INTO outbox_actions (id, who, action, filter) VALUES ($1, $1, $1, '{"error": "<script>alert(1)</script>"}')`, text)
	}
	types := registry.New()
	require.NoError(t, registry.Register[struct{ ID string }](types, "order.placed"))
	routes, err := route.New(route.Routes{"order.*": {{Sink: "events", When: `key == "<script>alert(1)</script>"`}}}, []string{"events"}, nil)
	require.NoError(t, err)
	return &target.Target{
		Store: o.store, Types: types, Routing: admin.Routing{Routes: routes}, Endpoints: o.endpoints(t),
		Doctor: func(_ context.Context, only ...string) (found []doctor.Finding) {
			for _, id := range only {
				found = append(found, doctor.Finding{ID: id, Status: doctor.Fail, Text: hostile[0], Why: hostile[1], Fix: hostile[3] + ";", Link: hostile[2]})
			}
			return found
		},
		Configuration: func() ([]byte, error) { return []byte(strings.Join(hostile, "\n")), nil },
	}
}

// each calls do with each address of the registered pages, with values for wildcards and query
// parameters.
func (p *Pages) each(values []string, do func(method, path string)) {
	for _, pattern := range p.patterns {
		method, path, _ := strings.Cut(pattern, " ")
		path = strings.TrimSuffix(path, "{$}")
		for _, value := range values {
			filled := path
			for _, name := range []string{"{name}", "{id}", "{act}"} {
				filled = strings.ReplaceAll(filled, name, url.PathEscape(value))
			}
			do(method, filled)
			if strings.Contains(path, "{act}") {
				for _, verb := range []string{"run", "pause", "forget"} {
					do(method, strings.NewReplacer("{act}", verb, "{name}", url.PathEscape(value)).Replace(path))
				}
			}
			query := make(url.Values)
			for _, name := range parameters {
				do(method, filled+"?"+url.Values{name: {value}}.Encode())
				query.Set(name, value)
			}
			do(method, filled+"?"+query.Encode())
		}
	}
}

func TestEveryPageShowsHostileDataAsText(t *testing.T) {
	t.Parallel()
	o := databases["postgres"](t) // it refuses more than SQLite
	p := newPages(t, hostileTarget(t, o))
	for _, role := range []settings.Role{access.Viewer, access.Operator} {
		p.each(hostile, func(method, path string) {
			if method == http.MethodPost && strings.HasPrefix(path, "/schedules/") && strings.Contains(path, "forget") {
				return // this would delete the data of the test
			}
			status, page := p.ask(t, role, method, path, nil)
			require.Less(t, status, 500, "%s %s: %s", method, path, page)
			for _, raw := range []string{"<script>alert", "<img", `href="javascript:`} {
				require.NotContains(t, page, raw, "%s %s", method, path)
			}
		})
	}
}

func TestEveryPageRefusesInvalidParameters(t *testing.T) {
	t.Parallel()
	o := databases["postgres"](t) // it refuses more than SQLite
	p := newPages(t, &target.Target{Store: o.store, Endpoints: o.endpoints(t)})
	p.each(wrong, func(method, path string) {
		status, page := p.ask(t, access.Operator, method, path, nil)
		require.Less(t, status, 500, "%s %s: %s", method, path, page)
	})
}

func TestOnlyOperatorsAct(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		p := newPages(t, hostileTarget(t, o))
		for _, pattern := range p.patterns {
			method, path, _ := strings.Cut(pattern, " ")
			if method != http.MethodPost {
				continue
			}
			path = strings.NewReplacer("{name}", "a", "{act}", "pause", "{id}", "a").Replace(path)
			for _, role := range []settings.Role{"", access.Viewer} {
				status, _ := p.ask(t, role, method, path, nil)
				require.Equal(t, http.StatusForbidden, status, path)
			}
		}
	})
}

func TestWithoutADatabaseEveryPageSaysSo(t *testing.T) {
	t.Parallel()
	p := newPages(t, nil)
	p.each([]string{"a"}, func(method, path string) {
		status, page := p.ask(t, access.Operator, method, path, nil)
		require.Equal(t, http.StatusServiceUnavailable, status, path)
		require.Contains(t, page, "the database has not been reached yet")
	})
}

func TestWithADatabaseThatIsGoneEveryPageSaysSo(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		require.NoError(t, o.db.Close()) // before the first sample, which the overview would keep showing
		p := newPages(t, &target.Target{Store: o.store, Endpoints: o.endpoints(t), Privacy: mastered(t, 'a'), Doctor: func(context.Context, ...string) []doctor.Finding { return nil }})
		asked := 0
		p.each([]string{"a"}, func(method, path string) {
			if method == http.MethodGet && strings.HasPrefix(path, "/privacy") || path == "/doctor" || strings.HasPrefix(path, "/doctor?") || path == "/find" || strings.HasSuffix(path, "/a/a") || strings.Contains(path, "/a/a?") {
				return // these need no database, or refuse the request before they use it
			}
			status, page := p.ask(t, access.Operator, method, path, nil)
			if status == http.StatusBadRequest || status == http.StatusOK && strings.HasPrefix(path, "/find?") && !strings.Contains(path, "q=") {
				return // the request is refused before the database is used
			}
			asked++
			require.Equal(t, http.StatusServiceUnavailable, status, "%s %s: %s", method, path, page)
			require.Contains(t, page, "cannot be reached")
		})
		require.Positive(t, asked)
	})
}

func TestAConfigurationThatCannotBeReadIsAFindingOfItsPage(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		p := newPages(t, &target.Target{Store: o.store, Configuration: func() ([]byte, error) { return nil, errors.New("waybill.yaml: no such file") }})
		status, page := p.ask(t, access.Viewer, http.MethodGet, "/config", nil)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, page, "waybill.yaml: no such file")
	})
}

func TestTheChecksRunOnceAtATime(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		asked, answer := make(chan string), make(chan struct{})
		p := newPages(t, &target.Target{Store: o.store, Doctor: func(ctx context.Context, only ...string) []doctor.Finding {
			select {
			case asked <- only[0]:
			case <-ctx.Done():
			}
			select {
			case <-answer:
			case <-ctx.Done():
			}
			return []doctor.Finding{{ID: only[0], Status: doctor.OK, Text: "well"}}
		}})
		for range 3 {
			status, _ := p.ask(t, access.Operator, http.MethodPost, "/doctor", nil)
			require.Equal(t, http.StatusSeeOther, status)
		}
		for i, id := range doctor.IDs() {
			require.Equal(t, id, <-asked, "no second run starts")
			_, page := p.ask(t, access.Operator, http.MethodGet, "/doctor", nil)
			require.Contains(t, page, fmt.Sprintf("%d of %d checks", i, len(doctor.IDs())))
			answer <- struct{}{}
		}
		require.Eventually(t, func() bool {
			_, page := p.ask(t, access.Operator, http.MethodGet, "/doctor", nil)
			return strings.Contains(page, "ok "+fmt.Sprint(len(doctor.IDs()))) && strings.Contains(page, "by ada")
		}, 2*time.Minute, 10*time.Millisecond)
	})
}

func TestAnOldRowIsFoundByContinuingTheSearch(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.exec(t, `INSERT INTO outbox (id, type, payload) VALUES ('first', 'order.placed', '{}')`)
	o.exec(t, `UPDATE sqlite_sequence SET seq = 2 * $1 WHERE name = 'outbox'`, searchedRows)
	o.exec(t, `INSERT INTO outbox (id, type, payload) VALUES ('last', 'order.placed', '{}')`)
	p := newPages(t, &target.Target{Store: o.store})
	next := regexp.MustCompile(`rel="next" href="([^"]*)"`)
	search := func(id string) (last, requests int) {
		t.Helper()
		for path := "/notifications/" + id; ; {
			status, page := p.ask(t, access.Viewer, http.MethodGet, path, nil)
			requests++
			more := next.FindStringSubmatch(page)
			if more == nil {
				return status, requests
			}
			require.Equal(t, http.StatusNotFound, status)
			require.Contains(t, page, "not found yet")
			path = html.UnescapeString(more[1])
		}
	}
	for id, want := range map[string][2]int{"last": {http.StatusOK, 1}, "first": {http.StatusOK, 3}, "none": {http.StatusNotFound, 3}} {
		status, requests := search(id)
		require.Equal(t, want, [2]int{status, requests}, id)
	}
}

func TestFindGoesToThePageOfAWord(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.exec(t, `INSERT INTO outbox_cursors (sink, lane, lanes) VALUES ('partner', 0, 1)`)
		o.exec(t, `INSERT INTO outbox_schedules (name, id) VALUES ('daily', 'a')`)
		o.exec(t, `INSERT INTO outbox (id, type, key, payload, metadata) VALUES ('first', 'order.placed', 'order-1', '{}', '{"correlation_id": "chain"}')`)
		o.exec(t, `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt)
			VALUES ('partner', 7, 1, 'second', 'order.moved', 1, 'order-2', '2026-01-02T03:04:05.000000Z', '{}', '{}', 'dead', 3)`)
		all := o.endpoints(t)
		made, _, err := all.Create(t.Context(), webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: "https://acme.example"}})
		require.NoError(t, err)
		p := newPages(t, &target.Target{Store: o.store, Endpoints: all})
		for word, want := range map[string]string{
			made.ID: "/endpoints/" + made.ID, "acme": "/endpoints?all=1&tenant=acme",
			"partner": "/sinks/partner", "daily": "/schedules", "order.placed": "/types?type=order.placed", "order.moved": "/types?type=order.moved",
			"order-2": "/parked?key=order-2", "first": "/notifications/first", " second ": "/notifications/second",
		} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/find?q="+url.QueryEscape(word), nil)
			w := httptest.NewRecorder()
			p.ServeHTTP(w, r)
			require.Equal(t, http.StatusSeeOther, w.Code, "%s: %s", word, w.Body)
			require.Equal(t, want, w.Header().Get("Location"), word)
		}
		status, page := p.ask(t, access.Viewer, http.MethodGet, "/find?q=order-3", nil)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, page, `href="/log?key=order-3"`, "find searches only a part of the log for a key")
		status, page = p.ask(t, access.Viewer, http.MethodGet, "/log?key=order-1", nil)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, page, `href="/parked?key=order-1"`)
		require.Contains(t, page, `>partner · unread</span>`)
	})
}

func TestTheSinkPageNamesWhoPausedItAndTypesThatAreNotKnown(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.exec(t, `INSERT INTO outbox_cursors (sink, lane, lanes) VALUES ('partner', 0, 1)`)
		_, err := admin.New(o.store, "eve").For(admin.Request{Reason: "OPS-7"}).Pause(t.Context(), "partner")
		require.NoError(t, err)
		o.exec(t, `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, due_at, last_error)
			VALUES ('partner', 7, 1, 'second', 'order.moved', 2, '', '2026-01-02T03:04:05.000000Z', '{}', '{}', 'retrying', 0, '2100-01-02T03:04:05.000000Z', 'unknown: newer')`)
		p := newPages(t, &target.Target{Store: o.store})
		_, page := p.ask(t, access.Operator, http.MethodGet, "/sinks/partner", nil)
		require.Regexp(t, `Paused by eve, .*: OPS-7\. Nothing is delivered`, page)
		require.Contains(t, page, "1 delivery of order.moved version 2, which the forwarder that tried it does not know: unknown: newer")
		_, page = p.ask(t, access.Operator, http.MethodGet, "/", nil)
		require.Regexp(t, `the sink is paused since \S+ \S+Z by eve: OPS-7`, page)
	})
}
