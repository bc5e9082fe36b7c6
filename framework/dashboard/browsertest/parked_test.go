package browsertest

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// parkMany parks n deliveries of a sink, from an offset on, each with a different key.
func (s *site) parkMany(t *testing.T, sink, state string, from, n int) {
	t.Helper()
	s.exec(t, fmt.Sprintf(`INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, due_at, last_error, first_parked_at, updated_at)
		SELECT '%s', i, 0, 'id-' || i, 'order.placed', 1, 'key-' || i, now() - interval '2 hours', '{}', '{"n": 1}', '%s', 3,
			CASE WHEN '%s' = 'retrying' THEN now() + interval '5 minutes' END, 'http 503: the partner is overloaded', now() - interval '1 hour', now() - interval '10 minutes'
		FROM generate_series(%d, %d) i`, sink, state, state, from, from+n-1))
	s.exec(t, `INSERT INTO outbox_cursors (sink, lane, lanes) VALUES ($1, 0, 1) ON CONFLICT DO NOTHING`, sink)
}

// post sends a form as a browser does, without following redirects.
func post(t *testing.T, to string, form url.Values) (status int, location, body string) {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r, err := client.PostForm(to, form)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Body.Close()) }()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, r.Header.Get("Location"), string(text)
}

func get(t *testing.T, from string) (status int, body string) {
	t.Helper()
	r, err := http.Get(from)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Body.Close()) }()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(text)
}

// planned asks for a plan and returns the form that runs it.
func (s *site) planned(t *testing.T, ask url.Values) url.Values {
	t.Helper()
	status, _, body := post(t, s.url+"/parked/plan", ask)
	require.Equal(t, http.StatusOK, status, body)
	for _, name := range []string{"planned_at", "expect"} {
		found := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(body)
		require.NotNil(t, found, body)
		ask.Set(name, found[1])
	}
	return ask
}

// acted waits until an action has ended, and returns its count.
func (s *site) acted(t *testing.T, location string) (done int) {
	t.Helper()
	id := location[strings.LastIndex(location, "/")+1:]
	require.Eventually(t, func() bool {
		return s.number(t, `SELECT count(*) FROM outbox_actions WHERE id = $1 AND ended_at IS NOT NULL`, id) == 1
	}, patience, 10*time.Millisecond)
	return s.number(t, `SELECT count FROM outbox_actions WHERE id = $1`, id)
}

func TestAnEmptyListOfParkedNamesACommand(t *testing.T) {
	t.Parallel()
	b := newTab(t, newSite(t).url)
	require.Contains(t, b.open("/parked"), "waybill status")
	b.shoot("parked-empty")
	require.Contains(t, b.open("/parked?sink=none&state=dead"), "No parked delivery matches")
}

func TestParkedListsWhatMatches(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.parkMany(t, "partner", "dead", 1, 60)
	s.parkMany(t, "partner", "retrying", 61, 5)
	s.parkMany(t, "mail", "blocked", 1, 3)
	b := newTab(t, s.url)
	require.Contains(t, b.open("/parked"), "waits for an earlier delivery of its key")
	b.sees("partner · dead 60") // the counts come from a sample that is some seconds old
	b.shoot("parked")
	require.Contains(t, b.open("/parked?sink=partner&state=retrying"), "id-61")
	require.NotContains(t, b.open("/parked?key=key-7"), "id-8")
}

func TestTheSelectedAreRequeued(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.parkMany(t, "partner", "dead", 1, 5)
	s.parkMany(t, "mail", "blocked", 2, 1)
	b := newTab(t, s.url)
	b.open("/parked")
	b.do(chromedp.Click(`input[aria-label="id-2 at partner"]`), chromedp.Click(`input[aria-label="id-4 at partner"]`), chromedp.Click(`input[aria-label="id-2 at mail"]`),
		chromedp.Click(`button[name=act][value=requeue]`), chromedp.WaitVisible(`form[action="/parked/act"]`))
	var text string
	b.do(chromedp.Text("main", &text))
	require.Contains(t, text, "Requeue 2 deliveries?")
	require.Contains(t, text, "1 of the 3 selected are left as they are")
	b.shoot("plan")
	b.do(chromedp.Click(`form[action="/parked/act"] button`), chromedp.WaitVisible(`a[href="/actions"]:not(nav a)`))
	var location string
	b.do(chromedp.Location(&location))
	require.Contains(t, location, "/actions/")
	require.Equal(t, 2, s.acted(t, location))
	require.Equal(t, 2, s.number(t, `SELECT count(*) FROM outbox_parked WHERE state = 'retrying' AND id IN ('id-2', 'id-4') AND sink = 'partner'`))
	require.Equal(t, 3, s.number(t, `SELECT count(*) FROM outbox_parked WHERE state = 'dead'`))
	require.Contains(t, b.open(strings.TrimPrefix(location, s.url)), "selected 3")
	b.shoot("action")
	require.Contains(t, b.open("/actions"), "ada")
	b.shoot("actions")
}

func TestAnActionThatRunsIsCancelled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.parkMany(t, "partner", "dead", 1, 2000)
	form := s.planned(t, url.Values{"all": {"requeue"}})
	form.Set("typed", form.Get("expect"))
	tx, err := s.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), `SELECT FROM outbox_cursors FOR UPDATE`) // the action's first batch waits for it
	require.NoError(t, err)
	status, location, _ := post(t, s.url+"/parked/act", form)
	require.Equal(t, http.StatusSeeOther, status)
	b := newTab(t, s.url)
	require.Contains(t, b.open(location), "running")
	b.shoot("action-running")
	b.do(chromedp.Click(`form[action$="/cancel"] button`))
	s.eventually(t, 1, `SELECT count(*) FROM outbox_actions WHERE cancelled_by = 'ada'`)
	require.NoError(t, tx.Rollback())
	require.Eventually(t, func() bool {
		_, body := get(t, s.url+location)
		return strings.Contains(body, "cancelled")
	}, patience, 20*time.Millisecond)
	require.Zero(t, s.number(t, `SELECT count FROM outbox_actions`))
	status, _, _ = post(t, s.url+location+"/cancel", nil)
	require.Equal(t, http.StatusConflict, status)
}

func TestThePageOfAnActionShowsItsEndByItself(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.parkMany(t, "partner", "dead", 1, 5)
	form := s.planned(t, url.Values{"all": {"requeue"}})
	tx, err := s.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), `SELECT FROM outbox_cursors FOR UPDATE`) // the action waits for it
	require.NoError(t, err)
	_, location, _ := post(t, s.url+"/parked/act", form)
	parked, action := newTab(t, s.url), newTab(t, s.url)
	require.Contains(t, parked.open("/parked?state=dead"), "id-5")
	require.Contains(t, action.open(location), "running")
	_, body := get(t, s.url+location)
	require.Contains(t, body, `<noscript><meta http-equiv="refresh" content="2"></noscript>`)
	require.NoError(t, tx.Rollback())
	action.do(chromedp.WaitVisible(`//dt[text()="Ended"]`)) // the page has reloaded itself
	require.Contains(t, action.text(), "requeue done")
	require.Contains(t, action.text(), "5 of 5")
	parked.awaits(`document.querySelector("#more a").textContent.includes("gone, show")`)
	_, body = get(t, s.url+location)
	require.NotContains(t, body, "http-equiv")
}
