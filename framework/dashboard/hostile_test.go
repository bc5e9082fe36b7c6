package dashboard_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/settings"
)

// Some proxies add a header line to those of their client, the first of which may be empty.
func TestAHeaderOfAProxyIsSeenAfterOtherLines(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.Config{})
	for name, values := range map[string][]string{
		"X-Forwarded-For": {"", "203.0.113.7"}, "Via": {""}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Server": {"edge"}, "X-Client-IP": {"203.0.113.7"},
		"CF-Connecting-IP": {"203.0.113.7"}, "True-Client-IP": {"203.0.113.7"}, "X-Envoy-External-Address": {"203.0.113.7"},
	} {
		status, text := s.ask(t, "GET", "/", header(name, values...))
		require.Equal(t, http.StatusForbidden, status, name)
		require.Contains(t, text, "through a proxy", name)
	}
}

func TestAnInvalidUserNameIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, withAuth(settings.Auth{Proxy: settings.Proxy{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}))
	for _, name := range []string{"ada\xff", "\xc3\x28", "ada\x85\xa0"} {
		status, _ := s.ask(t, "GET", "/", header("X-Forwarded-User", name))
		require.Equal(t, http.StatusForbidden, status, "%q", name)
	}
	status, _ := s.ask(t, "GET", "/", header("X-Forwarded-User", "Adä"))
	require.Equal(t, authorized, status)
}

// A page of another site can make a browser send expensive requests, with the password that the browser
// has stored. So other sites may only link to the dashboard.
func TestEmbeddedRequestsOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, withAccess(settings.Observe{Pprof: true}))
	fetched := func(site, mode, dest string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", site)
			r.Header.Set("Sec-Fetch-Mode", mode)
			r.Header.Set("Sec-Fetch-Dest", dest)
		}
	}
	for _, path := range []string{"/", "/api/v1/doctor", "/debug/pprof/heap"} {
		for _, site := range []string{"cross-site", "same-site"} {
			for mode, dest := range map[string]string{"no-cors": "image", "cors": "empty", "navigate": "iframe", "websocket": "websocket"} {
				for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
					status, _ := s.ask(t, method, path, fetched(site, mode, dest))
					require.Equal(t, http.StatusForbidden, status, "%s %s %s %s", method, path, site, mode)
				}
			}
		}
	}
	for i, change := range []func(*http.Request){
		fetched("cross-site", "navigate", "document"), fetched("none", "navigate", "document"), fetched("same-origin", "cors", "empty"), fetched("same-origin", "no-cors", "style"),
	} {
		status, _ := s.ask(t, "GET", "/", change)
		require.Equal(t, authorized, status, i)
	}
}

func TestOnlyPathsBelowThePrefixAreServed(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.Config{Prefix: "/admin/outbox"})
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for path, want := range map[string]int{
		"/admin/outbox/": authorized, "/admin/outbox/parked": authorized, "/admin/outboxes": 404, "/admin/outbox.": 404, "/admin/outbox%2Fparked": 404, "/Admin/outbox/": 404, "/": 404,
		"/admin/outbox//parked": 404, "/admin/outbox/../outbox/": 404, "/admin/outbox//attacker.example/..": 404, "/admin/outbox/./": 404, "/admin/outbox/api/v1//status": 404,
	} {
		status, h, _ := s.answer(t, "GET", path)
		require.Equal(t, want, status, "%s %s", path, h.Get("Location"))
	}
	status, h, _ := s.answer(t, "GET", "/admin/outbox?a=b")
	require.Equal(t, http.StatusMovedPermanently, status)
	require.Equal(t, "/admin/outbox/?a=b", h.Get("Location"))
}

// A path that is refused in one form is refused in all other forms.
func TestNoFormOfAPathEvadesTheRole(t *testing.T) {
	t.Parallel()
	s := newSite(t, withAccess(settings.Observe{Pprof: true, Auth: settings.Auth{Tokens: tokens}}))
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, path := range []string{
		"/debug/pprof/heap", "//debug/pprof/heap", "/debug//pprof/heap", "/./debug/pprof/heap", "/x/../debug/pprof/heap", "/debug%2Fpprof%2Fheap", "/debug/pprof%2Fheap",
		"/%64ebug/pprof/heap", "/debug/pprof/heap/", "/debug/pprof/heap;x", "/static/../debug/pprof/heap", "/static/%2e%2e/debug/pprof/heap", "/static/..%2fdebug/pprof/heap",
		"/api/v1/../../debug/pprof/heap", "/DEBUG/pprof/heap", "/debug/pprof./heap", "/static/..%5c..%5chistory.go", "/static//etc/passwd",
	} {
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND"} {
			status, h, text := s.answer(t, method, path, bearer(viewerToken))
			require.NotEqual(t, http.StatusOK, status, "%s %s: %s", method, path, text)
			if to := h.Get("Location"); to != "" {
				require.Regexp(t, `^/[^/\\]`, to, fmt.Sprint(method, " ", path))
			}
		}
	}
}
