package browsertest

import (
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

func TestAPayloadIsShownOnRequestAndTheRequestIsLogged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.exec(t, `INSERT INTO outbox (id, type, key, metadata, payload) VALUES
		('a', 'customer.moved', 'c1', '{"correlation-id": "a"}', '{"name": "Ada", "email": "ada@example.org", "card": {"number": "4111", "brand": "visa"}}'),
		('b', 'order.placed', 'c1', '{"correlation-id": "a", "causation-id": "a"}', '{"total": 12345678901234567890, "email": "shown"}')`)
	b := newTab(t, s.url)
	require.NotContains(t, b.open("/notifications/a"), "Ada")
	b.shoot("notification")
	b.do(chromedp.Click(`form[action^="/notifications/"] button`), chromedp.WaitVisible(`pre.payload`))
	var text string
	b.do(chromedp.Text("main", &text))
	require.Contains(t, text, `"brand": "visa"`)
	require.Contains(t, text, "Viewed by ada at ")
	require.NotContains(t, text, "ada@example.org")
	require.NotContains(t, text, "4111")
	b.shoot("notification-payload")
	require.Contains(t, s.log.String(), `msg="a payload was viewed" user=ada address=127.0.0.1 id=a`)

	_, _, body := post(t, s.url+"/notifications/b", nil)
	require.Contains(t, body, "12345678901234567890")
	status, body := get(t, s.url+"/notifications/b")
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, body, "12345678901234567890")
	require.Contains(t, b.open("/notifications/b?chain=1"), "2 found")
	b.shoot("notification-chain")
}

func TestANotificationShowsWhereItIsAtEachSink(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.parkMany(t, "partner", "dead", 1, 1)
	s.parkMany(t, "mail", "retrying", 1, 1)
	s.exec(t, `UPDATE outbox_parked SET hook_error = 'the hook said no', hook_failures = 1 WHERE sink = 'mail'`)
	s.exec(t, `INSERT INTO outbox_receipts (sink, "offset", id, receipt, attempt, delivered_at) VALUES ('events', 1, 'id-1', 'kafka orders/3@1042', 1, now())`)
	b := newTab(t, s.url)
	text := b.open("/notifications/id-1?offset=1")
	for _, want := range []string{"dead", "kafka orders/3@1042", "the hook said no", "overloaded"} {
		require.Contains(t, text, want)
	}
	b.shoot("notification-sinks")
	b.do(chromedp.Click(`button[value=skip]`), chromedp.WaitVisible(`form[action="/parked/act"]`), chromedp.Click(`form[action="/parked/act"] button`), chromedp.WaitVisible(`main dl`))
	var location string
	b.do(chromedp.Location(&location))
	require.Equal(t, 1, s.acted(t, location))
	require.Zero(t, s.number(t, `SELECT count(*) FROM outbox_parked WHERE sink = 'partner'`))
}

func TestTheLogIsListedFromItsEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := newTab(t, s.url)
	require.Contains(t, b.open("/log"), "The log is empty")
	b.shoot("log-empty")
	s.exec(t, `INSERT INTO outbox (id, type, key, payload, occurred_on) SELECT 'n' || i, CASE WHEN i = 3 THEN 'rare.one' ELSE 'order.placed' END, 'k' || i % 7, '{"secret": 1}', now() - (200000 - i) * interval '1 second'
		FROM generate_series(1, 200000) i`)
	text := b.open("/log")
	require.Contains(t, text, "n200000")
	require.NotContains(t, text, "secret")
	b.shoot("log")
	b.do(chromedp.Click(`a[rel=next]`), chromedp.WaitVisible(`//th[contains(., "n199950")]`))
	text = b.open("/log?type=rare.*")
	require.Contains(t, text, "Searched to offset 100001")
	b.shoot("log-searched")
	b.do(chromedp.Click(`a[rel=next]`), chromedp.WaitVisible(`//th[contains(., "n3")]`))
	require.NotContains(t, b.open("/log?key=k3"), "k4")
}
