package browsertest

import (
	"encoding/json"
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

// hostileText breaks HTML, SQL and paths that are concatenated without escaping.
const hostileText = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>{{.}} ` + "\u202e" + `evil` + "\u202c" + ` é%2F/../?#&`

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

	// Each delivery is on exactly one page.
	seen := make(map[string]bool)
	next := "/parked"
	for next != "" {
		_, body := get(t, s.url+next)
		for _, id := range regexp.MustCompile(`aria-label="(id-\d+ at \w+)"`).FindAllStringSubmatch(body, -1) {
			require.False(t, seen[id[1]], id[1])
			seen[id[1]] = true
		}
		link := regexp.MustCompile(`rel="next" href="([^"]*)"`).FindStringSubmatch(body)
		if next = ""; link != nil {
			next = strings.ReplaceAll(link[1], "&amp;", "&")
		}
	}
	require.Len(t, seen, 68)
}

func TestMistakesInFiltersOfParkedAreExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for query, want := range map[string]string{
		"state=lost": "unknown state", "older=soon": "is not an age", "older=-1h": "is not an age", "type=a+b": "use a type like",
		"older=2h&newer=1h": "nothing is older than", "after=x": "incomplete or was changed", "after=%5B1%5D": "incomplete or was changed",
	} {
		status, body := get(t, s.url+"/parked?"+query)
		require.Equal(t, http.StatusBadRequest, status, query)
		require.Contains(t, body, want, query)
	}
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

func TestAllThatMatchAreDiscardedOnceTheNumberIsTyped(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.parkMany(t, "partner", "dead", 1, 1200)
	s.parkMany(t, "mail", "dead", 1, 3)
	form := s.planned(t, url.Values{"sink": {"partner"}, "all": {"discard"}})
	require.Equal(t, "1200", form.Get("expect"))
	for _, typed := range []string{"", "1199", "all", "1200x"} {
		form.Set("typed", typed)
		status, _, body := post(t, s.url+"/parked/act", form)
		require.Equal(t, http.StatusUnprocessableEntity, status)
		require.Contains(t, body, "type the number 1200")
	}
	require.Equal(t, 1203, s.number(t, `SELECT count(*) FROM outbox_parked`))
	form.Set("typed", "1,200")
	status, location, _ := post(t, s.url+"/parked/act", form)
	require.Equal(t, http.StatusSeeOther, status)
	require.Equal(t, 1200, s.acted(t, location))
	require.Equal(t, 3, s.number(t, `SELECT count(*) FROM outbox_parked`))

	status, _, body := post(t, s.url+"/parked/act", form)
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, body, "no delivery of this plan is left")
	require.Equal(t, 1, s.number(t, `SELECT count(*) FROM outbox_actions`))
}

func TestDeadHeadsAreSkipped(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.parkMany(t, "partner", "dead", 1, 3)
	s.exec(t, `UPDATE outbox_parked SET key = 'k'`)
	form := s.planned(t, url.Values{"state": {"dead"}, "all": {"skip"}})
	require.Equal(t, "1", form.Get("expect"))
	_, location, _ := post(t, s.url+"/parked/act", form)
	require.Equal(t, 1, s.acted(t, location))
	require.Zero(t, s.number(t, `SELECT count(*) FROM outbox_parked WHERE id = 'id-1'`))
}

func TestAPlanDoesNotAffectDeliveriesParkedLater(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.parkMany(t, "partner", "dead", 1, 10)
	form := s.planned(t, url.Values{"all": {"discard"}})
	s.parkMany(t, "partner", "dead", 11, 5)
	s.exec(t, `UPDATE outbox_parked SET updated_at = clock_timestamp() WHERE "offset" > 10 OR id = 'id-3'`)
	status, location, _ := post(t, s.url+"/parked/act", form)
	require.Equal(t, http.StatusSeeOther, status)
	require.Equal(t, 9, s.acted(t, location))
	require.Equal(t, 6, s.number(t, `SELECT count(*) FROM outbox_parked`))
}

func TestMoreThanWasExpectedIsPlannedAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.parkMany(t, "partner", "dead", 1, 10)
	form := s.planned(t, url.Values{"all": {"discard"}})
	s.parkMany(t, "partner", "dead", 11, 5)
	s.exec(t, `UPDATE outbox_parked SET updated_at = now() - interval '1 day' WHERE "offset" > 10`) // as if committed late
	status, _, body := post(t, s.url+"/parked/act", form)
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, body, "more deliveries match now")
	require.Contains(t, body, `name="expect" value="15"`)
	require.Equal(t, 15, s.number(t, `SELECT count(*) FROM outbox_parked`))
}

func TestAFormThatIsSentTwiceAtOnceDoesNothingTwice(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.parkMany(t, "partner", "dead", 1, 50)
	form := s.planned(t, url.Values{"all": {"requeue"}})
	results := make(chan string, 4)
	for range cap(results) {
		go func() {
			r, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).PostForm(s.url+"/parked/act", form)
			if err != nil {
				results <- ""
				return
			}
			_ = r.Body.Close()
			results <- r.Header.Get("Location")
		}()
	}
	sum := 0
	for range cap(results) {
		if location := <-results; location != "" {
			sum += s.acted(t, location)
		}
	}
	require.Equal(t, 50, sum)
}

func TestFormsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.parkMany(t, "partner", "dead", 1, 2)
	for name, c := range map[string]struct {
		path   string
		form   url.Values
		status int
	}{
		"nothing selected":  {"/parked/plan", url.Values{"act": {"discard"}}, http.StatusBadRequest},
		"unknown action":    {"/parked/plan", url.Values{"all": {"explode"}}, http.StatusBadRequest},
		"selected nonsense": {"/parked/plan", url.Values{"act": {"discard"}, "selected": {"nonsense"}}, http.StatusBadRequest},
		"no plan":           {"/parked/act", url.Values{"all": {"discard"}}, http.StatusBadRequest},
		"zero time":         {"/parked/act", url.Values{"all": {"discard"}, "planned_at": {"0001-01-01T00:00:00Z"}, "expect": {"2"}}, http.StatusBadRequest},
		"requeue blocked":   {"/parked/plan", url.Values{"all": {"requeue"}, "state": {"blocked"}}, http.StatusBadRequest},
		"too large":         {"/parked/plan", url.Values{"all": {"requeue"}, "key": {strings.Repeat("x", 1<<20)}}, http.StatusRequestEntityTooLarge},
	} {
		status, _, body := post(t, s.url+c.path, c.form)
		require.Equal(t, c.status, status, "%s: %s", name, body)
	}
	require.Zero(t, s.number(t, `SELECT count(*) FROM outbox_actions`))
	require.Equal(t, 2, s.number(t, `SELECT count(*) FROM outbox_parked`))
}

func TestAViewerSeesParkedWithoutButtonsAndCannotAct(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.parkMany(t, "partner", "dead", 1, 2)
	b := newTab(t, s.viewer)
	require.Contains(t, b.open("/parked"), "id-1")
	for _, page := range []string{"/parked", "/notifications/id-1"} {
		_, body := get(t, s.viewer+page)
		require.NotContains(t, body, `name="act"`, page)
		require.NotContains(t, body, `method="post"`, page)
	}
	form := s.planned(t, url.Values{"all": {"discard"}})
	for _, path := range []string{"/parked/plan", "/parked/act", "/notifications/id-1", "/actions/x/cancel"} {
		status, _, body := post(t, s.viewer+path, form)
		require.Equal(t, http.StatusForbidden, status, path)
		require.NotContains(t, body, `&#34;n&#34;`)
	}
	require.Equal(t, 2, s.number(t, `SELECT count(*) FROM outbox_parked`))
	require.Zero(t, s.number(t, `SELECT count(*) FROM outbox_actions`))
}

func TestManyParkedAreListedAndRequeued(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.parkMany(t, "partner", "dead", 1, 50_000)
	b := newTab(t, s.url)
	b.open("/parked")
	b.sees("partner · dead 10,000+")
	form := s.planned(t, url.Values{"all": {"requeue"}})
	require.Equal(t, "50000", form.Get("expect"))
	form.Set("typed", "50000")
	_, location, _ := post(t, s.url+"/parked/act", form)
	text := b.open(location)
	require.Contains(t, text, "requeue")
	require.Equal(t, 50_000, s.acted(t, location))
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

func TestHostileTextsAreShownAsTheyAre(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	raw, err := json.Marshal(map[string]string{"x": hostileText})
	require.NoError(t, err)
	_, err = s.db.ExecContext(t.Context(), `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, last_error, hook_error)
		VALUES ($1::text, 1, 0, $1::text, $1::text, 1, $1::text, now(), $2::jsonb, $2::json, 'dead', 1, $3, $1::text)`, hostileText, string(raw), hostileText+strings.Repeat("X", 10_000))
	require.NoError(t, err)
	_, err = s.db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, key, metadata, payload) VALUES ($1::text, $1::text, $1::text, $2::jsonb, $2::json)`, hostileText, string(raw))
	require.NoError(t, err)
	_, err = s.db.ExecContext(t.Context(), `INSERT INTO outbox_actions (id, who, action, filter) VALUES ($1::text, $1::text, $1::text, $2::jsonb)`, hostileText, string(raw))
	require.NoError(t, err)
	b := newTab(t, s.url)
	for _, page := range []string{
		"/parked", "/log", "/actions", "/notifications/" + url.PathEscape(hostileText), "/notifications/" + url.PathEscape(hostileText) + "?chain=1", "/actions/" + url.PathEscape(hostileText),
		"/parked?sink=" + url.QueryEscape(hostileText), "/parked?key=" + url.QueryEscape(hostileText), "/log?key=" + url.QueryEscape(hostileText), "/log?id=" + url.QueryEscape(hostileText),
	} {
		require.Contains(t, b.open(page), `<script>alert(1)</script>"'>`, page)
		var scripts int
		b.do(chromedp.Evaluate(`document.querySelectorAll("script:not([src]), img").length`, &scripts))
		require.Zero(t, scripts, page)
	}
	b.shoot("parked-hostile")
	b.open("/parked")
	b.do(chromedp.Click(`tbody th a`), chromedp.WaitVisible(`form[action^="/notifications/"] button`))
	b.shoot("notification-hostile")
	b.do(chromedp.Click(`form[action^="/notifications/"] button`), chromedp.WaitVisible(`pre.payload`))
	var text string
	b.do(chromedp.Text(`pre.payload`, &text))
	require.Contains(t, text, "<script>alert(1)</script>")
	b.open("/parked")
	b.do(chromedp.Click(`input[name=selected]`), chromedp.Click(`button[name=act][value=discard]`), chromedp.WaitVisible(`form[action="/parked/act"]`),
		chromedp.Click(`form[action="/parked/act"] button`), chromedp.WaitVisible(`main dl`))
	require.Eventually(t, func() bool { return s.number(t, `SELECT count(*) FROM outbox_parked`) == 0 }, patience, 10*time.Millisecond)
}
