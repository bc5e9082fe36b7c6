package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/api"
	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// quick is how long the fastest of five attempts at a page may take. The fastest counts, so that other
// load of the machine matters little.
const quick = 300 * time.Millisecond

// TestEveryPageIsQuickHoweverMuchThereIs writes a log of WAYBILL_DASHBOARD_ROWS rows, parks a
// tenth of them, with a backlog in each of 64 lanes of 40 sinks, and prints how long each page and
// each answer of the API takes. make bench-dashboard runs it with ten million rows.
// WAYBILL_DASHBOARD_DATABASE is postgres (the default) or sqlite.
func TestEveryPageIsQuickHoweverMuchThereIs(t *testing.T) {
	rows, _ := strconv.Atoi(cmp.Or(os.Getenv("WAYBILL_DASHBOARD_ROWS"), "0"))
	if rows == 0 {
		t.Skip("takes minutes: make bench-dashboard")
	}
	open := databases[cmp.Or(os.Getenv("WAYBILL_DASHBOARD_DATABASE"), "postgres")]
	require.NotNil(t, open, "WAYBILL_DASHBOARD_DATABASE is postgres or sqlite")
	o := open(t)
	o.fill(t, rows)
	sinks := o.largeSinks(t)
	routes, err := route.New(route.Routes{"order.*": route.To(sinks...), "audit.seen": route.To("audit")}, append(sinks, "audit"), nil)
	require.NoError(t, err)
	shown := &target.Target{
		Store: o.store, Routing: admin.Routing{Routes: routes},
		Doctor:        func(context.Context, ...string) []doctor.Finding { return nil },
		Configuration: func() ([]byte, error) { return []byte("sinks: {}\n"), nil },
	}
	p := newPages(t, shown)
	fresh := history.New(p.Target, p.Logger)
	fresh.Begin()
	began := time.Now()
	fresh.Snapshot(t.Context())
	waited := time.Since(began)
	fresh.Close()
	t.Logf("%-60s      %8s", "waiting for the first sample of the outbox", waited.Round(time.Millisecond))
	began = time.Now()
	_, err = o.store.Sample(t.Context(), store.SampleQuery{Types: shown.Routing.Filters()})
	require.NoError(t, err)
	t.Logf("%-60s      %8s", "a sample, as metrics and the overview take it", time.Since(began).Round(time.Millisecond))

	slow := []string{}
	if waited > quick {
		slow = append(slow, "before the first sample")
	}
	measure := func(path string, ask func() (int, string)) {
		took := make([]time.Duration, 5)
		for i := range took {
			began := time.Now()
			status, page := ask()
			took[i] = time.Since(began)
			if status >= 500 && !strings.Contains(path, "/health/") {
				t.Errorf("%s: %d %s", path, status, page[max(0, len(page)-1500):])
				break
			}
		}
		slices.Sort(took)
		t.Logf("%-60s best %8s  worst %8s", path, took[0].Round(100*time.Microsecond), took[4].Round(100*time.Microsecond))
		most := quick
		if path == "/api/v1/notifications/"+largeID(0) {
			most = findTime // this searches the whole log, within findTime
		}
		if took[0] > most {
			slow = append(slow, path)
		}
	}
	for _, path := range p.largePaths(rows) {
		measure(path, func() (int, string) { return p.ask(t, access.Operator, http.MethodGet, path, nil) })
	}
	served := api.New(api.Config{Target: p.Target, Acts: p.Acts, History: p.History, Logger: p.Logger})
	for _, path := range []string{
		"/status", "/sinks", "/sinks/partner", "/health/sinks", "/parked", "/parked?sink=partner&state=dead", "/parked?error=nothing+says+so", "/parked?type=order.*",
		"/parked?key=key-7", "/notifications/" + largeID(rows-5), "/notifications/" + largeID(0), "/actions", "/schedules", "/forwarders", "/types",
	} {
		measure("/api/v1"+path, func() (int, string) {
			w := httptest.NewRecorder()
			served.ServeHTTP(w, httptest.NewRequestWithContext(access.With(t.Context(), access.User{Name: "ada", Role: access.Operator}), http.MethodGet, path, nil))
			return w.Code, w.Body.String()
		})
	}

	// Searches and exact counts need not be quick, but they have a time limit.
	bounded := func(what string, most time.Duration, ask func() int) {
		began := time.Now()
		status := ask()
		took := time.Since(began)
		t.Logf("%-60s      %8s  %d", what, took.Round(time.Millisecond), status)
		if took > most {
			slow = append(slow, what)
		}
	}
	for _, path := range []string{"/find?q=" + largeID(rows/2), "/find?q=id-5", "/find?q=there-is-no-such-id"} {
		bounded(path, 2*findTime, func() int {
			status, page := p.ask(t, access.Operator, http.MethodGet, path, nil)
			require.NotEqual(t, 500, status, page)
			return status
		})
	}
	for _, form := range []url.Values{
		{"all": {"requeue"}, "state": {"dead"}}, {"all": {"discard"}, "sink": {"partner"}}, {"all": {"skip"}}, {"all": {"discard"}, "reason": {"nothing says so"}},
	} {
		bounded("/parked/plan "+form.Encode(), pageTime+2*time.Second, func() int {
			status, page := p.ask(t, access.Operator, http.MethodPost, "/parked/plan", form)
			require.NotEqual(t, http.StatusInternalServerError, status, page)
			return status
		})
	}
	require.Empty(t, slow)
}

// largePaths returns the pages to measure.
func (p *Pages) largePaths(rows int) []string {
	id := largeID(rows - 5)
	paths := []string{
		"/find?q=partner", "/find?q=order.placed", "/find?q=key-7", "/find?q=" + id,
		"/parked?sink=partner", "/parked?state=dead", "/parked?state=cancelled", "/parked?sink=partner&state=retrying", "/parked?type=order.placed", "/parked?type=no.such",
		"/parked?key=key-7", "/parked?sink=events&key=no+such", "/parked?reason=503", "/parked?reason=nothing+says+so", "/parked?older=2d", "/parked?newer=1m", "/parked?id=" + largeID(7),
		"/log?type=order.paid", "/log?type=no.such", "/log?key=key-7", "/log?id=" + id, "/log?since=2020-01-01&until=2020-01-02", "/log?since=2020-01-01",
		fmt.Sprintf("/log?before=%d", rows/2),
		"/notifications/" + id, fmt.Sprintf("/notifications/%s?offset=%d", id, rows-5), fmt.Sprintf("/notifications/id-5?offset=%d", 5),
		"/notifications/id-5", "/notifications/there-is-no-such-id", "/notifications/" + largeID(7), "/notifications/" + largeID(rows/2), fmt.Sprintf("/notifications/%s?offset=%d&chain=1", id, rows-5), "/sinks/audit",
	}
	for _, pattern := range p.patterns {
		method, path, _ := strings.Cut(pattern, " ")
		if method == http.MethodGet && path != "/notifications/{id}" {
			paths = append(paths, strings.NewReplacer("{$}", "", "/schedules/{name}", "/schedules/daily", "/actions/{id}", "/actions/a7", "{name}", "partner", "{act}", "pause").Replace(path))
		}
	}
	return paths
}

// largeID returns the id of the nth row, after rounding n down to a multiple of 7: only these rows
// have a UUIDv7. The time of the nth row's id is n milliseconds after largeBegin.
func largeID(n int) string {
	n -= n % 7
	return fmt.Sprintf("%s-7%03x-8000-%012x", uuidTime(int64(n)), n%4096, n)
}

// largeBegin is the time of row 0, in milliseconds since 1970.
const largeBegin = 1_700_000_000_000

func uuidTime(n int64) string {
	text := fmt.Sprintf("%012x", largeBegin+n)
	return text[:8] + "-" + text[8:]
}

func (o outbox) largeSinks(t *testing.T) (names []string) {
	t.Helper()
	rows, err := o.db.QueryContext(t.Context(), `SELECT DISTINCT sink FROM outbox_cursors WHERE sink <> 'audit' ORDER BY sink`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(t, rows.Err())
	return names
}

// fill publishes rows, parks a tenth of them, and adds cursors, a schedule and actions.
func (o outbox) fill(t *testing.T, rows int) {
	t.Helper()
	began := time.Now()
	series, typ, uuid, at := `generate_series(1, $1) n`, `(ARRAY['order.placed', 'order.paid', 'order.shipped', 'parcel.lost'])[1 + n % 4]`,
		`overlay(lpad(to_hex(1700000000000 + n), 12, '0') placing '-' from 9 for 0) || '-7' || lpad(to_hex(n % 4096), 3, '0') || '-8000-' || lpad(to_hex(n), 12, '0')`,
		`to_timestamp((1700000000000 + n) / 1000.0)`
	if o.sqlite() {
		series, typ = `(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < $1) SELECT n FROM s) s`, `CASE n % 4 WHEN 0 THEN 'order.placed' WHEN 1 THEN 'order.paid' WHEN 2 THEN 'order.shipped' ELSE 'parcel.lost' END`
		uuid = `substr(printf('%012x', 1700000000000 + n), 1, 8) || '-' || substr(printf('%012x', 1700000000000 + n), 9) || printf('-7%03x-8000-%012x', n % 4096, n)`
		at = `strftime('%Y-%m-%dT%H:%M:%fZ', (1700000000000 + n) / 1000.0, 'unixepoch')`
	}
	id := `CASE WHEN n % 7 = 0 THEN ` + uuid + ` ELSE 'id-' || n END`
	o.exec(t, `INSERT INTO outbox (id, type, "key", occurred_on, payload, metadata)
		SELECT `+id+`, `+typ+`, 'key-' || (n % 100000), `+at+`, '{"total": 12}', '{"tenant": "acme"}' FROM `+series, rows)
	t.Logf("%d rows in %s", rows, time.Since(began).Round(time.Second))
	o.exec(t, `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, "key", occurred_on, metadata, payload, state, attempt, due_at, last_error, first_parked_at)
		SELECT CASE n % 2 WHEN 0 THEN 'events' ELSE 'partner' END, n, `+o.choose(`0`, `n % 1024`)+`, `+id+`, 'order.placed', 1, 'key-' || (n % 100000), `+at+`, '{}', '{"total": 12}',
			CASE n / 2 % 5 WHEN 0 THEN 'dead' WHEN 1 THEN 'retrying' WHEN 2 THEN 'blocked' WHEN 3 THEN 'dead' ELSE 'scheduled' END,
			3, CASE WHEN n / 2 % 5 IN (1, 4) THEN `+o.choose(`'2100-01-01T00:00:00.000Z'`, `now() + interval '1 day'`)+` END, 'partner: 503', `+at+`
		FROM `+series, rows/10)
	for _, sink := range largeNames {
		for lane := range 64 {
			o.exec(t, `INSERT INTO outbox_cursors (sink, lane, lanes) VALUES ($1, $2, 64)`, sink, lane)
		}
	}
	o.exec(t, `INSERT INTO outbox_schedules (name, id) VALUES ('daily', 'a')`)
	o.exec(t, `INSERT INTO outbox_actions (id, who, action, filter) SELECT 'a' || n, 'ada', 'requeue', '{}' FROM `+series, 10_000)
	if os.Getenv("WAYBILL_DASHBOARD_STATISTICS") != "none" { // "none" measures fresh tables, without statistics
		o.exec(t, o.choose(`ANALYZE`, `VACUUM ANALYZE`))
	}
	t.Logf("%d rows and %d parked deliveries in %s", rows, rows/10, time.Since(began).Round(time.Second))
}

// largeNames has 40 sinks. One of them, audit, gets no rows, since no row has its type.
var largeNames = func() []string {
	names := []string{"events", "partner", "audit"}
	for len(names) < 40 {
		names = append(names, fmt.Sprintf("sink-%02d", len(names)))
	}
	return names
}()

func (o outbox) sqlite() bool {
	_, is := o.store.(*sqlite.Store)
	return is
}

// choose returns the text for the database of the outbox.
func (o outbox) choose(inSQLite, inPostgreSQL string) string {
	if o.sqlite() {
		return inSQLite
	}
	return inPostgreSQL
}
