package browsertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard"
)

func TestTheOverviewOfAnEmptyOutboxNamesTheNextCommand(t *testing.T) {
	t.Parallel()
	b := newTab(t, newSite(t).url)
	require.Contains(t, b.open("/"), "waybill forward -c waybill.yaml")
	b.shoot("overview-empty")
}

func TestTheOverviewShowsFiguresAndProblems(t *testing.T) {
	t.Parallel()
	s := newSite(t, withShop(t))
	s.publish(t, 50, "order.placed")
	s.publish(t, 3, "order.wrong")
	s.eventually(t, 6, `SELECT count(*) FROM outbox_parked`)
	b := newTab(t, s.url)
	b.open("/")
	b.sees(`partner breaker open`, "connection refused", "3 dead", "3 retrying", "problems", "order.placed 50 order.wrong 3")
	var hidden int
	b.do(chromedp.EmulateViewport(390, 800), chromedp.Evaluate(`document.querySelector("nav").scrollWidth - document.querySelector("nav").clientWidth`, &hidden), chromedp.EmulateViewport(1280, 800))
	require.LessOrEqual(t, hidden, 0, "all of the navigation is seen on a phone")
	b.shoot("overview")
	b.do(chromedp.Click(`//a[text()="partner"]`), chromedp.WaitVisible(`//h2[text()="Settings in effect"]`))
	b.sees("Settings in effect", "threshold", "connection refused", "0–255")
	b.shoot("sink")
}

func TestTheOverviewShowsFortySinksOfSixtyFourLanes(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(s *site, _ *dashboard.Target) {
		for i := range 40 {
			s.cursors(t, fmt.Sprintf("partner-%02d-with-a-rather-long-name", i), 64)
		}
		s.member(t, "host-0")
		s.publish(t, 500, "order.placed")
		s.park(t, "partner-07-with-a-rather-long-name", "order.placed", "", "timeout", 12_000)
	})
	b := newTab(t, s.url)
	b.expected = "503" // until the first sample
	b.open("/")
	b.sees("partner-39-with-a-rather-long-name", "10,000+ dead", "500")
	b.fitsAPhone()
	b.shoot("overview-much")
	b.open("/sinks/partner-07-with-a-rather-long-name")
	b.sees("1008–1023", "host-2")
	b.fitsAPhone()
	b.shoot("sink-much")
}

// hostile has names that would break a page that does not escape them.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `a/b?c=d#e%2Ff&g`, "\u202Eright to left\u202C שלום", `{{.}} ' " \ `, strings.Repeat("long", 500),
}

func TestNamesAndErrorsAreEscaped(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(s *site, _ *dashboard.Target) {
		for i, name := range hostile {
			s.cursors(t, name, 1)
			s.park(t, name, hostile[0], hostile[1], strings.Repeat(hostile[i], 1+8_000/len(hostile[i])), 2)
		}
		s.member(t, hostile[0])
		_, err := s.db.ExecContext(t.Context(), `UPDATE outbox_forwarders SET sinks = '[]', state = jsonb_build_object($1::text,
		jsonb_build_object('breaker_open', true, 'open_since', '2026-01-01T00:00:00Z', 'cause', $2::text))`, hostile[1], strings.Repeat(hostile[0], 400))
		require.NoError(t, err)
	})
	b := newTab(t, s.url)
	b.open("/")
	b.sees(hostile[0], hostile[1], hostile[2])
	b.fitsAPhone()
	b.shoot("overview-hostile")
	var links []string
	b.do(chromedp.Evaluate(`[...document.querySelectorAll("tbody th a")].map((a) => a.pathname)`, &links))
	require.Len(t, links, len(hostile))
	found := make(map[string]bool)
	for _, link := range links {
		var title string
		b.do(chromedp.Navigate(b.base+link), chromedp.Evaluate(`document.querySelector("h1").firstChild.data.trim()`, &title))
		found[title] = true
		b.fitsAPhone()
	}
	for _, name := range hostile {
		require.True(t, found[strings.TrimSpace(name)], name)
	}
	b.shoot("sink-hostile")
}

// sees waits until the main part of the page contains all texts.
func (b *tab) sees(texts ...string) {
	b.t.Helper()
	var now string
	for end := time.Now().Add(patience); ; {
		now = b.text()
		missing := ""
		for _, text := range texts {
			if !strings.Contains(now, strings.Join(strings.Fields(text), " ")) {
				missing = text
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			require.Contains(b.t, now, missing)
		}
		if b.still {
			b.do(chromedp.Sleep(200 * time.Millisecond))
		} else {
			b.do(chromedp.Sleep(500*time.Millisecond), chromedp.Reload())
		}
	}
}

// text returns the text of the main part of the page, with single spaces. After a click, wait for something
// of the next page before: the page must not change while it is read.
func (b *tab) text() string {
	b.t.Helper()
	var text string
	b.do(chromedp.Evaluate(`document.querySelector("main").innerText`, &text))
	return strings.Join(strings.Fields(text), " ")
}

// fitsAPhone fails if the page is wider than a phone.
func (b *tab) fitsAPhone() {
	b.t.Helper()
	var wide int
	b.do(chromedp.EmulateViewport(390, 800), chromedp.Evaluate(`document.documentElement.scrollWidth`, &wide), chromedp.EmulateViewport(1280, 800))
	require.LessOrEqual(b.t, wide, 390)
}
