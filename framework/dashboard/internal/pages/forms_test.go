package pages

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/store"
)

// park parks n dead deliveries of a sink, from an offset on, which last changed long ago.
func (o outbox) park(t *testing.T, sink string, from, n int) {
	t.Helper()
	o.exec(t, fmt.Sprintf(`INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, updated_at)
		WITH RECURSIVE i (n) AS (SELECT %d UNION ALL SELECT n + 1 FROM i WHERE n < %d)
		SELECT '%s', n, 0, 'id-' || n, 'order.placed', 1, 'key-' || n, '2026-01-02T03:04:05.000000Z', '{}', '{}', 'dead', 3, '2026-01-02T03:04:05.000000Z' FROM i`, from, from+n-1, sink))
	o.exec(t, `INSERT INTO outbox_cursors (sink, lane, lanes) VALUES ($1, 0, 1) ON CONFLICT DO NOTHING`, sink)
}

func (o outbox) count(t *testing.T, table string) (n int) {
	t.Helper()
	require.NoError(t, o.db.QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
	return n
}

// planned asks for a plan and returns the form that runs it.
func (p *Pages) planned(t *testing.T, form url.Values) url.Values {
	t.Helper()
	status, page := p.ask(t, access.Operator, http.MethodPost, "/parked/plan", form)
	require.Equal(t, http.StatusOK, status, page)
	for _, name := range []string{"planned_at", "expect"} {
		found := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(page)
		require.NotNil(t, found, page)
		form.Set(name, found[1])
	}
	return form
}

func TestAPlanIsRunOnceAndWithItsNumberTyped(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.park(t, "partner", 1, 120)
		o.park(t, "mail", 1, 3)
		p := newPages(t, &target.Target{Store: o.store})
		form := p.planned(t, url.Values{"sink": {"partner"}, "all": {"discard"}})
		require.Equal(t, "120", form.Get("expect"))
		run := func(typed string) (int, string) {
			form.Set("typed", typed)
			return p.ask(t, access.Operator, http.MethodPost, "/parked/act", form)
		}
		for _, typed := range []string{"", "119", "all", "120x"} {
			status, page := run(typed)
			require.Equal(t, http.StatusUnprocessableEntity, status)
			require.Contains(t, page, "type the number 120")
		}
		require.Equal(t, 123, o.count(t, "outbox_parked"))
		status, page := run("1 20")
		require.Equal(t, http.StatusSeeOther, status, page)
		require.Eventually(t, func() bool { return o.count(t, "outbox_actions WHERE ended_at IS NOT NULL") == 1 }, time.Minute, 10*time.Millisecond)
		require.Equal(t, 3, o.count(t, "outbox_parked"))
		status, page = run("120")
		require.Equal(t, http.StatusConflict, status)
		require.Contains(t, page, "no delivery of this plan is left")
		require.Equal(t, 1, o.count(t, "outbox_actions"))
	})
}

func TestMoreThanWasExpectedIsPlannedAgain(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.park(t, "partner", 1, 10)
		p := newPages(t, &target.Target{Store: o.store})
		form := p.planned(t, url.Values{"all": {"discard"}})
		o.park(t, "partner", 11, 5) // as if committed late
		status, page := p.ask(t, access.Operator, http.MethodPost, "/parked/act", form)
		require.Equal(t, http.StatusConflict, status)
		require.Contains(t, page, "more deliveries match now")
		require.Contains(t, page, `name="expect" value="15"`)
		require.Equal(t, 15, o.count(t, "outbox_parked"))
	})
}

func TestEachParkedDeliveryIsOnOnePage(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.park(t, "partner", 1, 60)
		o.park(t, "mail", 1, 8)
		p := newPages(t, &target.Target{Store: o.store})
		seen := make(map[string]bool)
		for next := "/parked"; next != ""; {
			_, page := p.ask(t, access.Operator, http.MethodGet, next, nil)
			for _, id := range regexp.MustCompile(`aria-label="(id-\d+ at \w+)"`).FindAllStringSubmatch(page, -1) {
				require.False(t, seen[id[1]], id[1])
				seen[id[1]] = true
			}
			link := regexp.MustCompile(`rel="next" href="([^"]*)"`).FindStringSubmatch(page)
			if next = ""; link != nil {
				next = strings.ReplaceAll(link[1], "&amp;", "&")
			}
		}
		require.Len(t, seen, 68)
	})
}

func TestMistakesOfAddressesAndFormsAreExplained(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.park(t, "mail", 1, 2)
		p := newPages(t, &target.Target{Store: o.store})
		yes := url.Values{"confirmed": {"yes"}}
		for _, c := range []struct {
			path   string
			form   url.Values // nil for GET
			status int
			text   string
		}{
			{"/parked?state=lost", nil, 400, "unknown state"},
			{"/parked?metadata=tenant", nil, 400, "such as tenant=acme"},
			{"/parked?older=soon", nil, 400, "is not an age"},
			{"/parked?older=-1h", nil, 400, "is not an age"},
			{"/parked?type=a+b", nil, 400, "use a type like"},
			{"/parked?older=2h&newer=1h", nil, 400, "nothing is older than"},
			{"/parked?after=x", nil, 400, "incomplete or was changed"},
			{"/parked?after=%5B1%5D", nil, 400, "incomplete or was changed"},
			{"/log?since=soon", nil, 400, "is not a time"},
			{"/log?before=x", nil, 400, "is not a number"},
			{"/log?type=a+b", nil, 400, "use a type like"},
			{"/log?since=2020-01-02&until=2020-01-01", nil, 400, "is not before until"},
			{"/notifications/none", nil, 404, "unknown id"},
			{"/notifications/none?chain=1", nil, 404, ""},
			{"/notifications/none?offset=x", nil, 400, ""},
			{"/notifications/none", url.Values{}, 404, ""},
			{"/actions/none", nil, 404, ""},
			{"/actions/none/cancel", url.Values{}, 404, ""},
			{"/parked/plan", url.Values{"act": {"discard"}}, 400, "nothing is selected"},
			{"/parked/plan", url.Values{"all": {"explode"}}, 400, "no such act"},
			{"/parked/plan", url.Values{"all": {"replay"}}, 400, "no such act"},
			{"/parked/plan", url.Values{"act": {"discard"}, "selected": {"nonsense"}}, 400, ""},
			{"/parked/plan", url.Values{"all": {"requeue"}, "state": {"blocked"}}, 400, "cannot be requeued"},
			{"/parked/plan", url.Values{"all": {"requeue"}, "key": {strings.Repeat("x", 1<<20)}}, 413, ""},
			{"/parked/act", url.Values{"all": {"discard"}}, 400, "start again"},
			{"/parked/act", url.Values{"all": {"discard"}, "planned_at": {"0001-01-01T00:00:00Z"}, "expect": {"2"}}, 400, "start again"},
			{"/sinks/none/pause", yes, 404, "no sink"},
			{"/sinks/none/resume", url.Values{}, 404, "no sink"},
			{"/sinks/none/replay", url.Values{}, 404, "no sink"},
			{"/sinks/mail/pause", url.Values{"reason": {strings.Repeat("x", 501)}}, 400, "at most 500 characters"},
			{"/sinks/mail/replay", url.Values{"type": {""}, "expected": {"-1"}}, 200, ""},
			{"/sinks/_unrouted/replay", url.Values{"type": {"*"}, "expected": {"5"}}, 404, ""},
			{"/sinks/mail/replay?since=x", url.Values{"type": {"*"}, "rate": {"99999999999999999999"}}, 200, ""},
			{"/sinks/mail/replay?until=%00", url.Values{"type": {"a\x00b"}, "until": {"1"}}, 400, ""},
			{"/schedules/none/explode", yes, 404, "use run, pause, resume or forget"},
		} {
			method := http.MethodGet
			if c.form != nil {
				method = http.MethodPost
			}
			status, page := p.ask(t, access.Operator, method, c.path, c.form)
			require.Equal(t, c.status, status, "%s %v: %s", c.path, c.form, page)
			require.Contains(t, page, c.text, c.path)
			require.NotContains(t, page, "&lt;nil&gt;")
		}
		require.Zero(t, o.count(t, "outbox_actions"))
		require.Equal(t, 2, o.count(t, "outbox_parked"))
	})
}

func TestViewersSeeNoFormsThatAct(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.park(t, "mail", 1, 2)
		p := newPages(t, &target.Target{Store: o.store})
		for _, path := range []string{"/parked", "/notifications/id-1", "/sinks/mail"} {
			status, page := p.ask(t, access.Viewer, http.MethodGet, path, nil)
			require.Equal(t, http.StatusOK, status)
			require.NotContains(t, page, `method="post"`, path)
			require.NotContains(t, page, `name="act"`, path)
			_, page = p.ask(t, access.Operator, http.MethodGet, path, nil)
			require.Contains(t, page, `method="post"`, path)
		}
	})
}

func TestTheOverviewNamesWhatIsWrongWithTheOutbox(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.exec(t, `INSERT INTO outbox_cursors (sink, lane, lanes, updated_at) VALUES ('mail', 0, 1, '2026-01-02T03:04:05.000000Z')`)
	p := newPages(t, &target.Target{Store: held{o.store}, Doctor: func(context.Context, ...string) []doctor.Finding {
		return []doctor.Finding{{ID: "held-transactions", Status: doctor.Warn, Text: "1 open for more than 10s: pid 4711 of billing", Fix: "SELECT pg_terminate_backend(4711);"}}
	}})
	_, page := p.ask(t, access.Operator, http.MethodGet, "/", nil)
	for _, text := range []string{"No forwarder is running", ">stopped<", "An open transaction holds the log", "pid 4711 of billing", "SELECT pg_terminate_backend(4711);", "(2) Overview"} {
		require.Contains(t, page, text)
	}
	o.exec(t, `INSERT INTO outbox_forwarders (owner, sinks, live_until) VALUES ('host-0', '[]', '2999-01-01T00:00:00.000000Z')`)
	p = newPages(t, &target.Target{Store: o.store})
	_, page = p.ask(t, access.Operator, http.MethodGet, "/", nil)
	require.Contains(t, page, "1 of 1 lanes have no forwarder")
	require.Contains(t, page, ">stopped<")
	require.Contains(t, page, "(1) Overview")
}

// held is an outbox that reports a transaction open for a minute.
type held struct{ admin.Store }

func (h held) Sample(ctx context.Context, q store.SampleQuery) (store.Sample, error) {
	sample, err := h.Store.Sample(ctx, q)
	sample.Held = time.Minute
	return sample, err
}
