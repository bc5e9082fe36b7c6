package portal_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/framework/webhooks/portal"
)

// hidden returns the value of a hidden field of a page.
func hidden(t *testing.T, page, name string) string {
	t.Helper()
	found := regexp.MustCompile(`<input type="hidden" name="` + name + `" value="([^"]*)">`).FindStringSubmatch(page)
	require.NotNil(t, found, page)
	return html.UnescapeString(found[1])
}

var secretOf = regexp.MustCompile(`<pre class="secret" tabindex="0">([^<]*)</pre>`)

// secret returns the secret on a page.
func secret(t *testing.T, page string) string {
	t.Helper()
	found := secretOf.FindStringSubmatch(page)
	require.NotNil(t, found, page)
	return html.UnescapeString(found[1])
}

func TestACustomerManagesAnEndpointOnPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.Contains(t, s.get("/").text, "You have no endpoint yet")
	page := s.get("/new")
	require.Contains(t, page.text, "order.placed")
	form := url.Values{
		"key": {hidden(t, page.text, "key")}, "url": {"https://acme.example/hooks"}, "description": {"Orders\r\nof acme"}, "type": {"order.placed"}, "patterns": {"audit.*"},
		"when": {"payload.total > 1"}, "headers": {"X-Token: topsecret\r\n\r\nX-Other: a:b\r\n"}, "rate": {"5/s"},
	}
	made := s.post("/new", form)
	require.Equal(t, http.StatusOK, made.status, made.text)
	first := secret(t, made.text)
	require.True(t, strings.HasPrefix(first, "whsec_"))
	require.Contains(t, made.text, "pip install")
	require.Equal(t, first, secret(t, s.post("/new", form).text), "a form that is sent twice makes one endpoint")
	all, err := s.endpoints.List(t.Context(), webhooks.Query{Tenant: "acme"})
	require.NoError(t, err)
	require.Len(t, all, 1)
	e := all[0]
	at := "/endpoints/" + e.ID
	require.Equal(t, []string{"order.placed", "audit.*"}, e.Types)
	require.Equal(t, map[string]string{"X-Token": "topsecret", "X-Other": "a:b"}, e.Headers)
	require.Equal(t, "Orders\nof acme", e.Description)

	for _, path := range []string{"/", at, at + "/edit", at + "/rotate", at + "/disable", at + "/delete"} {
		page := s.get(path)
		require.Equal(t, http.StatusOK, page.status, path)
		require.NotContains(t, page.text, first, path)
		require.NotContains(t, page.text, "topsecret", path)
	}
	page = s.get(at + "/edit")
	require.Contains(t, page.text, "X-Other: ***\nX-Token: ***\n")
	require.Regexp(t, `value="order.placed" checked`, page.text)
	require.Contains(t, page.text, ">audit.*</textarea>")
	form = url.Values{"version": {hidden(t, page.text, "version")}, "url": {"https://acme.example/new"}, "headers": {"X-Token: ***"}}
	saved := s.post(at+"/edit", form)
	require.Equal(t, http.StatusSeeOther, saved.status, saved.text)
	require.Equal(t, prefix+at, saved.header.Get("Location"))
	read, err := s.endpoints.Get(t.Context(), "acme", e.ID)
	require.NoError(t, err)
	require.Equal(t, webhooks.Settings{URL: "https://acme.example/new", Types: []string{"*"}, Headers: map[string]string{"X-Token": "topsecret"}}, read.Settings)

	require.Equal(t, http.StatusSeeOther, s.post(at+"/edit", form).status, "a form that is sent twice is saved once")
	form.Set("url", "https://acme.example/newer")
	old := s.post(at+"/edit", form)
	require.Equal(t, http.StatusConflict, old.status)
	require.Contains(t, old.text, "Someone else has changed this endpoint meanwhile")
	form.Set("version", hidden(t, old.text, "version"))
	require.Equal(t, http.StatusSeeOther, s.post(at+"/edit", form).status)

	require.Equal(t, first, secret(t, s.post(at+"/secret", nil).text))
	version := url.Values{"version": {hidden(t, s.get(at+"/rotate").text, "version")}}
	rotated := s.post(at+"/rotate", version)
	require.NotEqual(t, first, secret(t, rotated.text))
	require.Equal(t, http.StatusConflict, s.post(at+"/rotate", version).status, "a form that is sent twice makes one secret")

	require.Equal(t, http.StatusSeeOther, s.post(at+"/disable", nil).status)
	page = s.get(at)
	require.Contains(t, page.text, store.DisabledByPerson)
	require.Contains(t, page.text, `action="`+prefix+at+`/enable"`)
	require.Equal(t, http.StatusConflict, s.post(at+"/recover", url.Values{"since": {"2026-01-01T00:00"}}).status)
	require.Equal(t, http.StatusSeeOther, s.post(at+"/enable", nil).status)
	require.Contains(t, s.post(at+"/recover", url.Values{"since": {"2026-01-01T00:00"}}).text, "No delivery has failed for good")
	require.Equal(t, http.StatusSeeOther, s.post(at+"/delete", nil).status)
	require.Equal(t, http.StatusNotFound, s.get(at).status)
	require.NotContains(t, s.log.String(), "topsecret")
	require.NotContains(t, s.log.String(), first)
}

func TestMistakesOfAFormAreBesideItsFields(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	e := s.create("acme", webhooks.Settings{URL: "https://acme.example/"})
	for field, wrong := range map[string]string{"url": "ftp://acme.example/", "patterns": "nothing.*", "when": "payload.", "headers": "X-Token", "rate": "often"} {
		form := url.Values{"version": {"1"}, "key": {"k"}, "url": {"https://acme.example/new"}}
		form.Set(field, wrong)
		named := strings.Replace(field, "patterns", "types", 1)
		for _, path := range []string{"/new", "/endpoints/" + e.ID + "/edit"} {
			a := s.post(path, form)
			require.Equal(t, http.StatusUnprocessableEntity, a.status, "%s %s", path, field)
			require.Contains(t, a.text, `id="`+named+`-mistake"`)
			require.Contains(t, a.text, `aria-describedby="`+named+`-hint `+named+`-mistake" aria-invalid="true"`)
			require.Contains(t, a.text, html.EscapeString(wrong), "the input is kept")
		}
	}
	everything := url.Values{"version": {"1"}, "key": {"k"}, "url": {"ftp://acme.example/"}, "patterns": {"nothing.*"}, "when": {"payload."}, "headers": {"X-Token"}, "rate": {"often"}}
	for _, path := range []string{"/new", "/endpoints/" + e.ID + "/edit"} {
		a := s.post(path, everything)
		require.Equal(t, http.StatusUnprocessableEntity, a.status)
		for _, label := range []string{"URL", "Types", "Condition", "Extra headers", "Rate"} {
			require.Equal(t, 1, strings.Count(a.text, ">"+label+"</a>: "), "all mistakes at once: %s", label)
		}
	}
	a := s.post("/new", url.Values{"key": {"k"}, "url": {"https://acme.example/new"}, "secret": {"short"}})
	require.Contains(t, a.text, `id="secret-mistake"`)
	require.Contains(t, s.post("/new", url.Values{"url": {"https://acme.example/new"}, "headers": {"X-A: 1\nx-a: 2"}}).text, "headers-mistake")
	all, err := s.endpoints.List(t.Context(), webhooks.Query{})
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.EqualValues(t, 1, all[0].Version)
}

func TestAMistakeNamesNoHiddenType(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *portal.Config, _ *webhooks.Config) {
		c.Hide = func(typ string) bool { return typ == "audit.done" }
	})
	a := s.post("/new", url.Values{"key": {"k"}, "url": {"https://acme.example/"}, "patterns": {"nothing.*"}})
	require.Contains(t, a.text, "matches no type")
	require.NotContains(t, a.text, "audit.done")
}

func TestAProblemIsSaidInWordsWithTheWayBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	e := s.create("acme", webhooks.Settings{URL: "https://acme.example/"})
	attempt := s.attempt(e)
	for path, want := range map[string]string{"/endpoints/" + e.ID + "/recover": "/endpoints/" + e.ID, "/endpoints/" + e.ID + "/rotate": "/endpoints/" + e.ID, "/attempts/" + attempt.ID + "/resend": "/attempts/" + attempt.ID} {
		a := s.post(path, nil)
		require.Contains(t, a.text, "<h1>That was not done</h1>", path)
		require.Contains(t, a.text, `href="`+prefix+want+`">Back</a>`)
	}
	require.Contains(t, s.post("/endpoints/"+e.ID+"/recover", nil).text, "The time since when to deliver again is missing, or in the future: name one that is over.")
	_, err := s.db.ExecContext(t.Context(), "DELETE FROM outbox_endpoints") // by a colleague
	require.NoError(t, err)
	for _, path := range []string{"/edit", "/secret", "/rotate", "/test", "/delete"} {
		a := s.post("/endpoints/"+e.ID+path, nil)
		require.Equal(t, http.StatusNotFound, a.status, path)
		require.Contains(t, a.text, "There is no such endpoint or attempt.")
		require.NotContains(t, a.text, ">Back</a>")
	}
	require.Contains(t, s.ask("", http.MethodGet, "/", "").text, "<h1>Log in</h1>")
}

func TestAPublicKeyHasItsOwnWayToVerify(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.post("/new", url.Values{"key": {"k"}, "url": {"https://acme.example/"}, "asymmetric": {"yes"}})
	require.True(t, strings.HasPrefix(secret(t, a.text), "whpk_"), a.text)
	require.Contains(t, a.text, "Ed25519PublicKey")
	require.NotContains(t, a.text, "standardwebhooks.NewWebhook")
}

func TestTheAttemptsOfAnEndpointAreCountedAndListed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	e := s.create("acme", webhooks.Settings{URL: "https://acme.example/"})
	require.Contains(t, s.get("/endpoints/"+e.ID).text, "Nothing was sent yet")
	var ids []string
	for i := range 40 {
		a := s.attempt(e, func(a *store.Attempt) {
			if i%10 == 0 {
				a.Status, a.Error = 503, "transient: https://acme.example: 503 Service Unavailable"
			}
			if i == 5 {
				a.At = a.At.Add(-3 * time.Hour)
			}
		})
		ids = append([]string{a.ID}, ids...)
	}
	page := s.get("/endpoints/" + e.ID)
	require.Contains(t, page.text, "<dt>Succeeded</dt><dd>90 %</dd>")
	require.Contains(t, page.text, "Attempts by hour: 36 succeeded and 4 failed, at most 39 in an hour")
	require.Equal(t, ids[:25], attemptIDs(page.text))
	next := regexp.MustCompile(`rel="next" href="` + prefix + `([^"#]*)`).FindStringSubmatch(page.text)
	require.NotNil(t, next)
	require.Equal(t, ids[25:], attemptIDs(s.get(html.UnescapeString(next[1])).text))
	failed := s.get("/endpoints/" + e.ID + "?outcome=failed&type=&since=2026-01-01T00:00")
	require.Len(t, attemptIDs(failed.text), 4)
	require.Contains(t, failed.text, "failed · 503")
	require.Contains(t, s.get("/endpoints/"+e.ID+"?type=nothing").text, "No attempt matches")
	require.Equal(t, http.StatusBadRequest, s.get("/endpoints/"+e.ID+"?outcome=maybe").status)
	require.Equal(t, http.StatusBadRequest, s.get("/endpoints/"+e.ID+"?since=soon").status)

	attempt := s.get("/attempts/" + ids[0])
	require.Contains(t, attempt.text, "&#34;order_id&#34;: &#34;o-1&#34;", "JSON is indented")
	require.Contains(t, attempt.text, "<dt>Server</dt><dd>nginx</dd>")
	require.Equal(t, http.StatusGone, s.post("/attempts/"+ids[0]+"/resend", nil).status)
}

func attemptIDs(page string) (ids []string) {
	for _, found := range regexp.MustCompile(`href="`+prefix+`/attempts/([^"]*)"`).FindAllStringSubmatch(page, -1) {
		ids = append(ids, found[1])
	}
	return ids
}

func TestATestOnAPageShowsTheAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	e := s.create("acme", webhooks.Settings{URL: receiver(t, 500, nil, `{"why":"<b>broken</b>"}`)})
	a := s.post("/endpoints/"+e.ID+"/test", nil)
	require.Equal(t, http.StatusOK, a.status, a.text)
	for _, want := range []string{"failed · 500", webhooks.TestType, "&lt;b&gt;broken&lt;/b&gt;"} {
		require.Contains(t, a.text, want)
	}
}

func TestTheListHasPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 40 {
		s.create("acme", webhooks.Settings{URL: fmt.Sprintf("https://acme.example/%02d", i)})
	}
	page := s.get("/").text
	require.Contains(t, page, "https://acme.example/24<")
	require.NotContains(t, page, "https://acme.example/25<")
	next := regexp.MustCompile(`rel="next" href="` + prefix + `([^"]*)`).FindStringSubmatch(page)
	require.NotNil(t, next)
	page = s.get(html.UnescapeString(next[1])).text
	require.Contains(t, page, "https://acme.example/25<")
	require.Contains(t, page, "https://acme.example/39<")
	require.NotContains(t, page, "https://acme.example/24<")
}

func TestPagesLoadNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *portal.Config, _ *webhooks.Config) {
		c.Name, c.Logo, c.Accent, c.AccentDark, c.Frames = "Shop & Co", "https://cdn.shop.example/logo.svg", "#7a1fa2", "#d9a5ee", []string{"https://app.shop.example"}
	})
	a := s.get("/")
	require.Equal(t, "default-src 'none'; style-src 'self'; img-src 'self' https://cdn.shop.example; form-action 'self'; base-uri 'none'; frame-ancestors 'self' https://app.shop.example", a.header.Get("Content-Security-Policy"))
	require.Equal(t, "no-store", a.header.Get("Cache-Control"))
	require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"))
	require.Contains(t, a.text, "Shop &amp; Co")
	require.Contains(t, a.text, `<img src="https://cdn.shop.example/logo.svg" alt="" height="24">`)
	style := s.get("/static/style.css")
	require.Equal(t, "text/css; charset=utf-8", style.header.Get("Content-Type"))
	require.Contains(t, style.text, "--accent: light-dark(#7a1fa2, #d9a5ee);")
	require.NotContains(t, style.text, portal.DefaultAccent)
	require.Equal(t, "image/svg+xml", s.get("/static/icon.svg").header.Get("Content-Type"))
	require.Equal(t, http.StatusNotFound, s.get("/static/layout.html").status)
	for _, path := range []string{"/", "/new"} {
		page := s.get(path).text
		for _, never := range []string{"<script", "style=", "javascript:"} {
			require.NotContains(t, page, never, path)
		}
		require.NotRegexp(t, `<[^>]* on[a-z]+=`, page)
	}
}

func TestErrorsOfTheDatabaseAreOnlyInTheLog(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.NoError(t, s.db.Close())
	for _, path := range []string{"/", "/api/endpoints"} {
		a := s.get(path)
		require.Equal(t, http.StatusInternalServerError, a.status)
		require.NotContains(t, a.text, "database")
		require.Contains(t, a.text, "try again later")
	}
	require.Contains(t, s.log.String(), "database is closed")
}
