package browsertest

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

func TestFiguresChangeWithoutAReloadAndRowsDoNotMove(t *testing.T) {
	t.Parallel()
	s := newSite(t, withSinks(t, "mail"))
	b := newTab(t, s.url)
	b.open("/")
	b.sees("No problems")
	b.still = true
	b.do(chromedp.Evaluate(`window.first = true; document.querySelector("tbody tr").id = "kept"`, nil))
	s.publish(t, 37, "order.placed")
	b.sees("37")
	s.cursors(t, "archive", 1)
	s.park(t, "mail", "order.placed", "", "timeout", 3)
	b.do(chromedp.WaitVisible(`#more a`, chromedp.ByQuery))
	b.awaits(`document.querySelector("#more a").textContent.includes("3 new, show")`)
	b.awaits(`document.title.startsWith("(1)")`)
	var rows string
	b.do(chromedp.Evaluate(`[...document.querySelectorAll("tbody th a")].map((a) => a.textContent).join() + " " + window.first + " " + !!document.getElementById("kept")`, &rows))
	require.Equal(t, "mail true true", rows, "no row moves, and the page is not reloaded")
	b.shoot("overview-new")
	b.do(chromedp.Click(`#more a`, chromedp.ByQuery), chromedp.WaitVisible(`//a[text()="archive"]`))
}

func TestTheLogCountsNewRowsAndDoesNotMove(t *testing.T) {
	t.Parallel()
	s := newSite(t, withSinks(t, "mail"))
	s.publish(t, 2, "order.placed")
	b := newTab(t, s.url)
	b.open("/log")
	b.still = true
	s.publish(t, 3, "order.paid")
	b.awaits(`document.querySelector("#more a")?.textContent === "3 new, show"`)
	rows := func() (n int) {
		b.do(chromedp.Evaluate(`document.querySelectorAll("tbody tr").length`, &n))
		return n
	}
	require.Equal(t, 2, rows())
	b.do(chromedp.Click(`#more a`, chromedp.ByQuery), chromedp.WaitVisible(`//td[text()="5"]`))
}

func TestADisconnectionIsShownAndEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t, withSinks(t, "mail"))
	var away atomic.Bool
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			panic(http.ErrAbortHandler)
		}
		s.server.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	b := newTab(t, front.URL)
	b.expected = "ERR_"
	b.open("/")
	b.sees("No problems")
	b.still = true
	away.Store(true)
	front.CloseClientConnections()
	b.do(chromedp.WaitVisible(`#broken`, chromedp.ByQuery))
	var sign string
	b.do(chromedp.Text(`#broken`, &sign, chromedp.ByQuery))
	require.Regexp(t, `^Disconnected, figures of .*\d\d:\d\d`, sign)
	b.shoot("overview-disconnected")
	away.Store(false)
	b.do(chromedp.WaitNotVisible(`#broken`, chromedp.ByQuery))
	s.publish(t, 41, "order.placed")
	b.sees("41")
}
