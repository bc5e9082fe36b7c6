package browsertest

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
	"github.com/waybill-go/waybill/sinks/kafka"
)

// newForwarder returns a forwarder that is not running.
func newForwarder(t *testing.T, s *site) *forwarder.Forwarder {
	t.Helper()
	sink := sinks.Func(func(context.Context, *notification.Delivery) (notification.Receipt, error) { return "", nil })
	f, err := forwarder.New(forwarder.Config{Store: s.store, Name: "shop-7d9f", Sinks: map[string]forwarder.Sink{"events": {Sink: sink}}, Routes: route.Routes{"*": route.To("events")}})
	require.NoError(t, err)
	return f
}

func TestSchedulesAreListedAndActedOn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, viewer := newTab(t, s.serve(t, dashboard.Operator, dashboard.Target{})), newTab(t, s.serve(t, dashboard.Viewer, dashboard.Target{}))
	require.Contains(t, b.open("/schedules"), "No process has run a schedule")
	b.shoot("schedules-empty")

	s.exec(t, `INSERT INTO outbox_schedules (name, id, spec, missed, last_tick, next_tick, paused) VALUES
		('daily-report', 'a', '0 9 * * MON-FRI Europe/Berlin', 'one', now() - interval '3 hours', now() + interval '21 hours', false),
		('hourly-sync', 'b', 'every 1h', 'all', now() - interval '2 hours', now() - interval '1 hour', false),
		('newsletter', 'c', '@weekly UTC', 'skip', NULL, now() + interval '4 days', true),
		($1, 'd', $1, 'one', now(), now() + interval '1 minute', false)`, `<script>alert(1)</script>`)
	text := b.open("/schedules")
	for _, want := range []string{"daily-report", "0 9 * * MON-FRI Europe/Berlin", "in 20 h", "3 h ago", "late", "paused", "<script>alert(1)</script>"} {
		require.Contains(t, text, want)
	}
	b.shoot("schedules")
	require.NotContains(t, viewer.open("/schedules"), "Pause", "a viewer sees no buttons")

	var heading string
	b.do(chromedp.Click(`a[href$="/daily-report/pause"]`, chromedp.ByQuery), chromedp.WaitVisible("form button.primary", chromedp.ByQuery), chromedp.Text("h1", &heading, chromedp.ByQuery))
	require.Equal(t, "Pause daily-report?", heading)
	b.shoot("schedules-confirm")
	b.do(chromedp.Click("form button.primary", chromedp.ByQuery), chromedp.WaitVisible(`a[href$="/daily-report/resume"]`, chromedp.ByQuery))
	all, err := s.store.Schedules(t.Context())
	require.NoError(t, err)
	for _, schedule := range all {
		require.Equal(t, schedule.Name == "daily-report" || schedule.Name == "newsletter", schedule.Paused, schedule.Name)
	}
	actions, err := s.store.Actions(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, actions, 1)
	require.Equal(t, "pause schedule by ada", actions[0].Name+" by "+actions[0].Who)
}

func TestDifferencesBetweenForwardersAreShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	f := newForwarder(t, s)
	b := newTab(t, s.serve(t, dashboard.Operator, dashboard.Target{Forwarder: f}))
	require.Contains(t, b.open("/forwarders"), "No forwarder is running")
	b.shoot("forwarders-empty")

	running := store.Running{Version: "shop v1.4.0", Settings: "0a1b2c3d4e5f60718293", Checkpoint: 12 * time.Millisecond, Sinks: []store.SinkRunning{
		{Sink: "events", Delivered: 1_234_567, Failed: 12, PerSecond: 84.2, InFlight: 7, Threshold: 16, Pending: 21},
		{Sink: "partner", Delivered: 981, Failed: 40, Dead: 3, Threshold: 16, Pending: 64, BreakerOpen: true, Cause: "503: <b>maintenance</b>"},
		{Sink: store.SinkOthers, Delivered: 10_000},
	}}
	other := store.Running{Version: "shop v1.3.9", Settings: "ffffeeee4e5f60718293", Checkpoint: 4 * time.Second}
	for _, m := range []store.Member{
		{Owner: f.Owner(), Sinks: []string{"events", "partner"}, Running: running},
		{Owner: "shop-8c2a/17/aabbccdd", Sinks: []string{"events", "partner"}, Running: running},
		{Owner: "shop-old/9/11223344", Sinks: []string{"events"}, Running: other},
		{Owner: "<script>alert(1)</script>/1/x", Sinks: []string{"<b>x</b>"}, Running: store.Running{Version: "<script>", Settings: strings.Repeat("x", 10_000)}},
	} {
		require.NoError(t, s.store.Heartbeat(t.Context(), m, time.Hour))
	}
	for _, sink := range []string{"events", "partner"} {
		_, err := s.store.Cut(t.Context(), sink, 8, store.StartOldest)
		require.NoError(t, err)
		for i, lane := range store.Lanes(sink, 8)[:6] {
			_, err := s.store.Acquire(t.Context(), lane, []string{f.Owner(), "shop-8c2a/17/aabbccdd"}[i%4/2], time.Hour)
			require.NoError(t, err)
		}
	}
	text := b.open("/forwarders")
	for _, want := range []string{"this process", "3 different settings", "3 different versions", "other settings", "slow", "cannot deliver to 1 sink", "0–1, 4–5 of 8", "2–3 of 8", "no owner", "<script>alert(1)</script>", "1,234,567", "84/s", "7 of 16", "503: <b>maintenance</b>", "all others"} {
		require.Contains(t, text, want)
	}
	b.shoot("forwarders")
}

func TestTypesShowTheirSinks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	empty := newTab(t, s.serve(t, dashboard.Viewer, dashboard.Target{}))
	require.Contains(t, empty.open("/types"), "No notification has been published yet")
	empty.shoot("types-empty")

	types := registry.New()
	require.NoError(t, registry.Register[struct{ ID string }](types, "order.placed", registry.Aliases("order.created")))
	routes, err := route.New(route.Routes{
		"order.*": {{Sink: "events"}, {Sink: "partner", When: `payload.total > 100 && metadata.tenant == "acme"`, Payload: map[string]string{"sum": "payload.total"}}},
	}, []string{"events", "partner"}, types)
	require.NoError(t, err)
	s.exec(t, `INSERT INTO outbox (type, version, payload) SELECT (ARRAY['order.placed', 'order.created', 'parcel.lost', $1])[1 + n % 4], 1 + n % 2, '{}' FROM generate_series(1, 400) n`, `<script>alert(1)</script>`)
	b := newTab(t, s.serve(t, dashboard.Viewer, dashboard.Target{Types: types, Routing: admin.Routing{Routes: routes, MaxAttempts: func(string, string) int { return 12 }}}))
	text := b.open("/types")
	for _, want := range []string{"order.placed", "alias of order.placed", "cannot decode v2", "no route", "payload.total > 100", "<script>alert(1)</script>"} {
		require.Contains(t, text, want)
	}
	b.shoot("types")
	b.do(chromedp.SendKeys(`form.filters input[name=type]`, "order.created\r", chromedp.ByQuery), chromedp.WaitVisible(".way", chromedp.ByQuery), chromedp.Text("main", &text, chromedp.ByQuery))
	for _, want := range []string{"an alias, routed as order.placed", "sum: payload.total"} {
		require.Contains(t, text, want)
	}
	b.shoot("types-way")
	require.Contains(t, b.open("/types?type=not.routed"), "No route matches")
	require.Contains(t, b.open("/types?type=order.*"), "invalid")
}

func TestATypeIsShownToItsConsumers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	set := new(contract.Set)
	require.NoError(t, set.Add(contract.About{Type: "order.placed", Version: 1, Key: true, Former: true}, []byte(`{"type": "object", "properties": {"euros": {"type": "number"}}}`)))
	require.NoError(t, set.Add(contract.About{Type: "order.placed", Version: 2, Key: true, Owner: "Checkout, checkout@shop.example", Aliases: []string{"order.created"}}, []byte(`{
		"title": "Order placed", "description": "A customer has placed an order and paid for it.\n\nIt is published `+"`once`"+` for each order, after the payment.",
		"type": "object", "required": ["order", "total", "lines"], "properties": {
			"order": {"type": "string", "format": "uuid", "description": "Id of the order."},
			"total": {"$ref": "#/$defs/money", "description": "What the customer pays, with `+"`shipping`"+`."},
			"lines": {"type": "array", "items": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}, "price": {"$ref": "#/$defs/money"}}}},
			"note": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "What the customer wrote."}
		},
		"$defs": {"money": {"type": "object", "required": ["cents", "currency"], "properties": {"cents": {"type": "integer"}, "currency": {"enum": ["EUR", "USD"]}}}},
		"examples": [{"order": "0198f6a0-0000-7000-8000-000000000000", "total": {"cents": 1290, "currency": "EUR"}, "lines": []}]
	}`)))
	const attack = `<script>alert(1)</script>`
	hostile := attack + `'"/` + strings.Repeat("x", 200)
	require.NoError(t, set.Add(contract.About{Type: hostile, Version: 1, Owner: attack, ContentType: ""}, []byte(`{
		"title": "`+attack+`", "description": "`+attack+strings.Repeat("y", 500)+`", "properties": {"`+attack+`": {"description": "`+"`"+attack+`", "enum": ["`+attack+strings.Repeat("z", 500)+`"]}}, "examples": ["`+attack+`"]}`)))
	routes, err := route.New(route.Routes{
		"order.*": {{Sink: "events"}, {Sink: "partner", When: `payload.total.cents > 100`}},
	}, []string{"events", "partner"}, nil)
	require.NoError(t, err)
	http := httpsink.Config{URL: "https://shop:hunter2@partner.example/hooks/hunter2", Secret: "whsec_hunter2"}
	topic := kafka.Config{Brokers: []string{"kafka-1.example:9092", "kafka-2.example:9092"}, Topic: "shop.{{.Type}}"}
	b := newTab(t, s.serve(t, dashboard.Viewer, dashboard.Target{
		Routing: admin.Routing{Routes: routes}, Contracts: func() (*contract.Set, error) { return set, nil },
		Channels: map[string]sinks.Channel{"events": topic.Channel(), "partner": http.Channel()},
	}))
	require.Contains(t, b.open("/types"), "order.placed")
	text := b.open("/types?type=order.placed")
	for _, want := range []string{
		"A customer has placed an order", "checkout@shop.example", "only read", "published", "Order placed", "lines[].price.cents", `"EUR" or "USD"`, "What the customer pays, with shipping.",
		"kafka-1.example:9092", "shop.{Type}", "https partner.example", "Verify", "Webhook-Signature", "payload.total.cents > 100", "1290",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "hunter2")
	b.shoot("types-contract")
	require.Contains(t, b.open("/types?type=order.placed&version=1"), "euros")
	require.Contains(t, b.open("/types?type=order.created&version=x"), "Order placed", "an alias, and a version that is none")

	text = b.open("/types?type=" + url.QueryEscape(hostile))
	require.Contains(t, text, attack+strings.Repeat("y", 500))
	require.Contains(t, text, "`"+attack)
	b.shoot("types-contract-hostile")
	var title string
	b.do(chromedp.Evaluate(`fetch(document.querySelector("a[download]").href).then(r => r.json()).then(schema => schema.title)`, &title,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	require.Equal(t, attack, title, "the link leads to the schema")
}

func TestTheConfigurationIsShownWithLineNumbers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.Contains(t, newTab(t, s.serve(t, dashboard.Viewer, dashboard.Target{})).open("/config"), "no configuration file")

	f := newForwarder(t, s)
	require.NoError(t, s.store.Heartbeat(t.Context(), store.Member{Owner: f.Owner(), Running: store.Running{Settings: "0a1b2c3d4e5f60718293"}}, time.Hour))
	require.NoError(t, s.store.Heartbeat(t.Context(), store.Member{Owner: "shop-8c2a/17/aabb", Running: store.Running{Settings: "ffff"}}, time.Hour))
	yaml := "database: postgres://app:***@localhost:5432/app\noutbox:\n  prefix: outbox\n  payload: json\nsinks:\n  partner:\n    kind: http\n    with:\n      url: https://partner.example/hooks/<script>alert(1)</script>\n      secret: '***'\n      note: " + strings.Repeat("long ", 60) + "\nroutes:\n  order.placed: [partner]\n"
	b := newTab(t, s.serve(t, dashboard.Viewer, dashboard.Target{Forwarder: f, Configuration: func() ([]byte, error) { return []byte(yaml), nil }}))
	text := b.open("/config")
	for _, want := range []string{"1 forwarder has other settings", "shop-8c2a/17/aabb", "kill -HUP", "secret: '***'", "<script>alert(1)</script>"} {
		require.Contains(t, text, want)
	}
	b.shoot("config")
}

func TestTheDoctorRunsItsChecksOnDemand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	check := func(ctx context.Context, only ...string) []doctor.Finding {
		found := doctor.Run(ctx, doctor.Subject{DB: s.db, PostgreSQL: &postgres.Config{Receipts: true}}, doctor.Options{Only: only})
		if only[0] == "configuration" {
			found = append(found, doctor.Finding{
				ID: "hostile", Status: doctor.Fail, Text: "<script>alert(1)</script> " + strings.Repeat("x", 2000), Why: `"><img src=x onerror=alert(1)>`,
				Fix: "GRANT SELECT ON outbox TO app;\nGRANT INSERT ON outbox TO app;", Link: "docs/doctor.md#hostile",
			}, doctor.Finding{ID: "dead", Status: doctor.Warn, Text: "dead: partner: 1", Link: "docs/doctor.md#dead"})
		}
		return found
	}
	viewer := newTab(t, s.serve(t, dashboard.Viewer, dashboard.Target{Doctor: check}))
	var links []string
	viewer.open("/")
	viewer.do(chromedp.Evaluate(`[...document.querySelectorAll("nav a")].map(a => a.getAttribute("href"))`, &links))
	require.NotEmpty(t, links)
	require.NotContains(t, strings.Join(links, " "), "doctor", "the checks are for operators")

	b := newTab(t, s.serve(t, dashboard.Operator, dashboard.Target{Doctor: check}))
	b.open("/doctor")
	b.shoot("doctor-empty")
	b.do(chromedp.Click("main button.primary", chromedp.ByQuery), chromedp.WaitVisible(".statuses", chromedp.ByQuery))
	b.do(chromedp.WaitNotPresent("progress", chromedp.ByQuery)) // the page follows the run
	require.Contains(t, b.open("/doctor"), "Run them again")
	var ids []string
	b.do(chromedp.Evaluate(`[...document.querySelectorAll("article .badge")].map(b => b.textContent)`, &ids))
	require.Equal(t, "fail", ids[0], "failures come first")
	require.Equal(t, "ok", ids[len(ids)-1])
	text := b.open("/doctor")
	require.Contains(t, text, "by ada")
	require.Contains(t, text, "<script>alert(1)</script>")
	b.shoot("doctor")
	var remedies []string
	b.do(chromedp.Evaluate(`[...document.querySelectorAll('article a[href^="/"]')].map(a => a.getAttribute("href"))`, &remedies))
	require.Equal(t, []string{"/parked?state=dead"}, remedies, "a check that was left out needs none")
	require.NotContains(t, b.open("/doctor?status=fail"), "schema")
}
