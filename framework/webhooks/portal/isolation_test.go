package portal_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/framework/webhooks/portal"
)

// acts are the words for {act}.
var acts = []string{"rotate", "disable", "delete"}

// bodies are requests that would change something.
var bodies = map[string]string{
	"PATCH /api/endpoints/{id}":        `{"url": "https://globex.example/"}`,
	"POST /api/endpoints":              `{"url": "https://globex.example/"}`,
	"POST /api/endpoints/{id}/recover": `{"since": "2026-01-01T00:00:00Z"}`,
	"POST /new":                        "url=https%3A%2F%2Fglobex.example%2F",
	"POST /endpoints/{id}/edit":        "url=https%3A%2F%2Fglobex.example%2F",
	"POST /endpoints/{id}/recover":     "since=2026-01-01T00:00",
	"POST /endpoints/{id}/rotate":      "version=1",
}

// try sends the request of a pattern, with an id.
func (s *site) try(tenant, pattern, id string) answer {
	s.t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	path = strings.NewReplacer("{$}", "", "{id}", id).Replace(path)
	kind := "application/x-www-form-urlencoded"
	if strings.HasPrefix(path, "/api/") {
		kind = "application/json"
	}
	return s.ask(tenant, method, path, bodies[pattern], "Content-Type", kind)
}

func TestIDsOfAnotherTenantAreLikeUnknownOnes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	e := s.create("acme", webhooks.Settings{URL: receiver(t, 200, nil, "") + "/secret-path", Headers: map[string]string{"X-Token": "abc"}})
	attempt := s.attempt(e)
	var patterns []string
	for _, pattern := range portal.Patterns() {
		switch {
		case strings.Contains(pattern, "{act}"):
			for _, act := range acts {
				patterns = append(patterns, strings.Replace(pattern, "{act}", act, 1))
			}
		case strings.Contains(pattern, "{id}"):
			patterns = append(patterns, pattern)
		}
	}
	require.Len(t, patterns, 26)
	idOf := func(pattern string, e webhooks.Endpoint, a store.Attempt) string {
		if strings.Contains(pattern, "/attempts/{id}") {
			return a.ID
		}
		return e.ID
	}
	for _, pattern := range patterns {
		foreign, unknown := s.try("globex", pattern, idOf(pattern, e, attempt)), s.try("globex", pattern, notification.NewID())
		require.Equal(t, http.StatusNotFound, foreign.status, "%s: %s", pattern, foreign.text)
		foreign.header.Del("Date")
		unknown.header.Del("Date")
		require.Equal(t, unknown, foreign, pattern)
	}
	for _, path := range []string{"/", "/api/endpoints", "/?after=0", "/api/endpoints?after=0", "/api/endpoints?after=" + e.ID} {
		require.NotContains(t, s.ask("globex", http.MethodGet, path, "").text, "secret-path", path)
	}
	own := s.create("globex", webhooks.Settings{URL: "https://globex.example/"})
	for _, path := range []string{"/endpoints/" + own.ID, "/api/endpoints/" + own.ID + "/attempts"} {
		for _, query := range []string{"?delivery=" + url.QueryEscape(attempt.Delivery), "?type=order.placed"} {
			require.NotContains(t, s.ask("globex", http.MethodGet, path+query, "").text, attempt.ID)
		}
	}
	read, err := s.endpoints.Get(t.Context(), "acme", e.ID)
	require.NoError(t, err)
	require.EqualValues(t, 1, read.Version)
	require.Equal(t, e.Settings, read.Settings)

	for _, pattern := range patterns { // to its owner, each of them exists
		e := s.create("acme", e.Settings)
		a := s.try("acme", pattern, idOf(pattern, e, s.attempt(e)))
		require.NotContains(t, []int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusInternalServerError}, a.status, "%s: %s", pattern, a.text)
	}
}

// Names of tenants that differ in case, in spaces or in what LIKE and globs understand are different tenants.
func TestNoTenantIsLikeAnother(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	e := s.create("acme", webhooks.Settings{URL: "https://acme.example/"})
	for _, tenant := range []string{"ACME", "acm_", "acme%", "%", "*", "acm", "acmee", "'acme'", "acme' OR '1'='1", "acme/", "acme;globex"} {
		require.Equal(t, http.StatusNotFound, s.ask(tenant, http.MethodGet, "/endpoints/"+e.ID, "").status, tenant)
		require.Empty(t, s.callAs(tenant, http.MethodGet, "/endpoints", "").body["endpoints"], tenant)
	}
}

func TestNoFormOfAPathReachesAnotherTenant(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	e := s.create("acme", webhooks.Settings{URL: "https://acme.example/secret-path"})
	attempt := s.attempt(e)
	for _, path := range []string{
		"/endpoints/%s", "/endpoints/%s/", "/endpoints//%s", "/endpoints/./%s", "/endpoints/x/../%s", "/endpoints%%2F%s", "/endpoints/%%2F%s", "/endpoints/%%2e%%2e/endpoints/%s",
		"/endpoints/acme%%2F%s", "/endpoints/acme/%s", "/endpoints/%s%%00", "/endpoints/%s%%20", "/endpoints/%s;x", "/endpoints/%s%%2Fedit", "/endpoints/%%ff%s", "/endpoints/%s?tenant=acme",
		"/ENDPOINTS/%s", "/api/endpoints/%s", "/api/endpoints/%s?tenant=acme", "/api/endpoints/x%%2F..%%2F%s", "/api/endpoints//%s", "/api//endpoints/%s", "/api/../api/endpoints/%s",
		"/static/../endpoints/%s", "/static/%%2e%%2e%%2Fendpoints%%2F%s", "/static%%2F../endpoints/%s", "/static/..%%2Fendpoints/%s", "/static%%2F..%%2Fapi/endpoints?x=%s", "/static/x%%2F..%%2F..%%2Fapi/endpoints?x=%s", "/../../account/webhooks/endpoints/%s",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "PATCH", "DELETE", "OPTIONS", "PROPFIND"} {
			at := fmt.Sprintf(path, e.ID)
			a := s.ask("globex", method, at, "")
			require.GreaterOrEqual(t, a.status, 300, "%s %s: %s", method, at, a.text)
			require.NotContains(t, a.text, "secret-path")
			stranger := s.ask("", method, at, "")
			require.GreaterOrEqual(t, stranger.status, 300, "%s %s: %s", method, at, stranger.text)
			require.NotContains(t, stranger.text, e.ID)
			if to := a.header.Get("Location"); to != "" {
				require.True(t, strings.HasPrefix(to, prefix+"/"), "%s %s leads to %s", method, at, to)
			}
		}
	}
	for _, id := range []string{"", "*", "_", "%25", e.ID[:8], e.ID[:8] + "%25", strings.ToUpper(attempt.ID), "0", "null", "undefined", "..", strings.Repeat("a", 5000)} {
		for _, path := range []string{"/endpoints/", "/attempts/", "/api/endpoints/", "/api/attempts/"} {
			a := s.ask("acme", http.MethodGet, path+id, "")
			require.NotEqual(t, http.StatusOK, a.status, "%s%s: %s", path, id, a.text)
			require.Less(t, a.status, 500, "%s%s: %s", path, id, a.text)
		}
	}
	_, err := s.endpoints.Get(t.Context(), "acme", e.ID)
	require.NoError(t, err)
}

func TestOnlyPathsBelowThePrefixAreServed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	root := strings.TrimSuffix(s.url, prefix)
	for path, want := range map[string]int{
		prefix + "/": 200, prefix: 307, "/": 404, "/account/": 404, "/account/webhooksx/": 404, "/account/webhooks.": 404, "/account%2Fwebhooks/": 404, "/Account/webhooks/": 404, "/endpoints/x": 404, "/api/endpoints": 404,
	} {
		s.url = root
		a := s.ask("acme", http.MethodGet, path, "")
		require.Equal(t, want, a.status, path)
	}
	bare := newSite(t, func(c *portal.Config, _ *webhooks.Config) { c.Prefix = "" })
	require.Equal(t, http.StatusOK, bare.get("/").status)
	require.Contains(t, bare.get("/").text, `href="/static/style.css"`)
	require.Equal(t, http.StatusOK, bare.call("GET", "/endpoints", "").status)
	odd := newSite(t, func(c *portal.Config, _ *webhooks.Config) { c.Prefix = "/a b/ü" })
	odd.url = strings.TrimSuffix(odd.url, "/a b/ü") + "/a%20b/%C3%BC"
	require.Equal(t, http.StatusOK, odd.get("/").status)
	require.Contains(t, odd.get("/").text, `href="/a%20b/%C3%BC/static/style.css"`)
	require.Equal(t, http.StatusOK, odd.get("/static/style.css").status)
}

func TestWhoMayNotUseThePortalSeesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *portal.Config, _ *webhooks.Config) {
		c.Authorize = func(r *http.Request) (string, error) {
			switch as := r.Header.Get("X-Tenant"); as {
			case "stranger":
				return "", fmt.Errorf("no session: %w", portal.ErrUnauthenticated)
			case "both":
				return "acme", errors.New("the session db-17 is broken")
			case "nul":
				return "ac\x00me", nil
			case "bytes":
				return "acme\xff", nil
			default:
				return "", nil
			}
		}
	})
	s.create("acme", webhooks.Settings{URL: "https://acme.example/secret-path"})
	for tenant, status := range map[string]int{"stranger": 401, "both": 403, "nul": 403, "bytes": 403, "nobody": 403} {
		for _, pattern := range append(portal.Patterns(), "GET /nothing", "GET /api/nothing") {
			if strings.Contains(pattern, "/static/") {
				continue // files have nothing of a tenant
			}
			a := s.try(tenant, strings.Replace(pattern, "{act}", "delete", 1), "x")
			require.Equal(t, status, a.status, "%s %s", tenant, pattern)
			require.NotContains(t, a.text, "secret-path")
			require.NotContains(t, a.text, "db-17")
			require.Equal(t, "no-store", a.header.Get("Cache-Control"))
			if strings.Contains(pattern, "/api/") {
				require.Equal(t, "application/problem+json", a.header.Get("Content-Type"), pattern)
			}
		}
	}
	require.Contains(t, s.log.String(), "db-17")
	require.Contains(t, s.log.String(), "Authorize has returned no tenant")
}

// A page of another site can make a browser send requests with the customer's session.
func TestRequestsOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	e := s.create("acme", webhooks.Settings{URL: "https://acme.example/"})
	fetched := func(method, path, site, mode, dest string) int {
		return s.ask("acme", method, path, "", "Sec-Fetch-Site", site, "Sec-Fetch-Mode", mode, "Sec-Fetch-Dest", dest).status
	}
	for _, site := range []string{"cross-site", "same-site"} {
		for _, path := range []string{"/endpoints/" + e.ID + "/delete", "/endpoints/" + e.ID + "/secret", "/api/endpoints/" + e.ID + "/rotate"} {
			require.Equal(t, http.StatusForbidden, fetched("POST", path, site, "navigate", "document"), path)
		}
		require.Equal(t, http.StatusForbidden, fetched("DELETE", "/api/endpoints/"+e.ID, site, "cors", "empty"))
		require.Equal(t, http.StatusForbidden, fetched("GET", "/api/endpoints", site, "cors", "empty"))
		require.Equal(t, http.StatusForbidden, fetched("GET", "/", site, "no-cors", "image"))
		require.Equal(t, http.StatusOK, fetched("GET", "/", site, "navigate", "document"), "a link")
		require.Equal(t, http.StatusOK, fetched("GET", "/", site, "navigate", "iframe"), "a frame, which the policy allows or not")
	}
	require.Equal(t, http.StatusForbidden, s.ask("acme", "POST", "/endpoints/"+e.ID+"/delete", "", "Origin", "https://evil.example").status, "an older browser")
	require.Equal(t, http.StatusOK, fetched("POST", "/endpoints/"+e.ID+"/secret", "same-origin", "navigate", "document"))
	_, err := s.endpoints.Get(t.Context(), "acme", e.ID)
	require.NoError(t, err)
}

func TestMistakesOfTheConfigurationAreReportedTogether(t *testing.T) {
	t.Parallel()
	_, err := portal.New(nil, portal.Config{Prefix: "webhooks/", Logo: "ftp://x", Accent: "red", AccentDark: "blue", Frames: []string{"https://app.example/path"}})
	for _, part := range []string{"the endpoints are nil: open the outbox before", "Authorize is missing", `Prefix is "webhooks/"`, `Logo is "ftp://x"`, `Accent is "red"`, `AccentDark is "blue"`, `Frames has "https://app.example/path"`} {
		require.ErrorContains(t, err, part)
	}
	_, err = portal.New(nil, portal.Config{Accent: "#f5a623", AccentDark: "#0b5cad"})
	require.ErrorContains(t, err, "Accent is #f5a623, whose contrast to the ground is 1.9 to 1", "on light ground")
	require.ErrorContains(t, err, "AccentDark is #0b5cad, whose contrast to the ground is 2.5 to 1", "on dark ground")
	for _, prefix := range []string{"/", "/a/", "//a", "/a/../b", "/{a}", "a"} {
		_, err := portal.New(nil, portal.Config{Prefix: prefix, Authorize: func(*http.Request) (string, error) { return "", nil }})
		require.ErrorContains(t, err, "Prefix", prefix)
	}
	for _, logo := range []string{"https://a.example;script-src *", "javascript:alert(1)", "//cdn.example/x", "data:image/png;base64,"} {
		_, err := portal.New(nil, portal.Config{Logo: logo, Authorize: func(*http.Request) (string, error) { return "", nil }})
		require.ErrorContains(t, err, "Logo", logo)
	}
}
