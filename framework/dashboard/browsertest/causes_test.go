package browsertest

import (
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

// failMany parks deliveries that failed for two causes, some with a history.
func (s *site) failMany(t *testing.T) {
	t.Helper()
	attempts := store.EncodePastAttempts([]store.PastAttempt{
		{Began: time.Now().Add(-10 * time.Minute), Duration: 48 * time.Millisecond, Number: 1, Class: "permanent", Error: "https://partner.example/orders: 422 Unprocessable Entity: missing field email", Forwarder: "shop-7d9f8c5b6-x2x9q"},
		{Began: time.Now().Add(-3 * time.Hour), Duration: 10 * time.Second, Number: 12, Class: "timeout", Error: "https://partner.example/orders: no response within 10s", Forwarder: "shop-7d9f8c5b6-kk4zd"},
	})
	s.exec(t, `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, due_at, last_error, attempts, first_parked_at, updated_at)
		SELECT CASE WHEN i % 3 = 0 THEN 'partner-webhooks' ELSE 'billing' END, i, 0, '0198c2f1-7d2e-7c55-9d6f-0f4d1f2a' || lpad(i::text, 4, '0'), 'order.placed', 1, 'order-' || i, now() - interval '2 hours', '{}', '{"n": 1}',
			CASE WHEN i % 3 = 2 THEN 'retrying' ELSE 'dead' END, i, CASE WHEN i % 3 = 2 THEN now() + interval '1 minute' * (20 - i) END,
			CASE WHEN i % 3 = 2 THEN 'https://billing.internal.example/hooks/v2/orders: no response within 10s: context deadline exceeded'
				ELSE 'https://partner.example/orders: 422 Unprocessable Entity: order ' || i || ' misses the field email' END,
			CASE WHEN i % 3 = 2 THEN replace($1, '"class":"permanent"', '"class":"timeout"') ELSE $1 END, now() - interval '1 hour' - interval '1 minute' * i, now() - interval '10 minutes'
		FROM generate_series(1, 14) i`, attempts)
	s.exec(t, `INSERT INTO outbox_cursors (sink, lane, lanes) VALUES ('partner-webhooks', 0, 1), ('billing', 0, 1)`)
}

func TestACauseIsRequeuedFromThePage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.failMany(t)
	b := newTab(t, s.url)
	text := b.open("/parked")
	require.Regexp(t, `5 ×\s+permanent https://partner.example/orders: 422 Unprocessable Entity: order … misses the field email\s+order.placed billing`, text)
	b.shoot("parked-causes")
	b.do(chromedp.Click(`//tr[contains(., "partner-webhooks") and contains(., "×")]//button[text()="Requeue"]`), chromedp.WaitVisible(`form[action="/parked/act"]`))
	require.Contains(t, b.text(), "Requeue 4 deliveries?")
	b.do(chromedp.Click(`form[action="/parked/act"] button`), chromedp.WaitVisible(`a[href="/actions"]:not(nav a)`))
	var location string
	b.do(chromedp.Location(&location))
	require.Equal(t, 4, s.acted(t, location))
	require.Equal(t, 4, s.number(t, `SELECT count(*) FROM outbox_parked WHERE attempt = 0 AND sink = 'partner-webhooks'`))
	require.Equal(t, 4, s.number(t, `SELECT count(*) FROM outbox_parked WHERE attempt = 0`))
	b.open("/notifications/0198c2f1-7d2e-7c55-9d6f-0f4d1f2a0003")
	b.sees("timeout", "10s", "shop-7d9f8c5b6-kk4zd")
	b.shoot("notification-attempts")
}

func TestAllRowsAreSelectedAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.failMany(t)
	b := newTab(t, s.url)
	b.open("/parked?sink=billing")
	b.do(chromedp.Click(`input[data-all]`))
	b.awaits(`document.querySelectorAll("input[name=selected]:checked").length === 10`)
	b.do(chromedp.Click(`input[name=selected]`))
	b.awaits(`!document.querySelector("input[data-all]").checked`)
	b.do(chromedp.Click(`.acts button[name=act][value=discard]`), chromedp.WaitVisible(`form[action="/parked/act"]`))
	require.Contains(t, b.text(), "Discard 9 deliveries?")
}

func TestParkedIsSorted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.failMany(t)
	s.parkMany(t, "mail", "blocked", 100, 60)
	first := func(query string) string {
		_, body := get(t, s.url+"/parked?"+query)
		return firstRow.FindStringSubmatch(body)[1]
	}
	require.Equal(t, "14", first("sort=oldest"))
	require.Equal(t, "14", first("sort=attempts"))
	require.Equal(t, "14", first("sort=due"))
	require.Equal(t, "1", first("sort=due&"+url.Values{"sink": {"billing"}, "state": {"dead"}}.Encode()), "none is due: as in the log")
	_, body := get(t, s.url+"/parked?sort=attempts")
	require.Contains(t, body, "from=50")
	_, body = get(t, s.url+"/parked?sort=attempts&from=50")
	require.NotContains(t, body, "from=")
	status, _ := get(t, s.url+"/parked?sort=colour")
	require.Equal(t, 400, status)
}

var firstRow = regexp.MustCompile(`data-row="parked [^,]*,(\d+),`)
