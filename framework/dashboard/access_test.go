package dashboard_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/crypto/bcrypt"

	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/settings"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	viewerToken   = "a token of a viewer, for tests"
	operatorToken = "a token of an operator, for tests"
)

// site is a served dashboard without an outbox. It answers authorized requests for pages with 503.
type site struct {
	*httptest.Server
	dashboard *dashboard.Dashboard
	log       *buffer
}

// buffer is a log that is safe for concurrent use.
type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func newSite(t *testing.T, c dashboard.Config) *site {
	t.Helper()
	log := new(buffer)
	c.Logger = slog.New(slog.NewTextHandler(log, nil))
	d, err := dashboard.New(c)
	require.NoError(t, err)
	t.Cleanup(d.Close)
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	return &site{server, d, log}
}

func withAccess(o settings.Observe) dashboard.Config { return dashboard.Config{Observe: o} }

func withAuth(a settings.Auth) dashboard.Config { return withAccess(settings.Observe{Auth: a}) }

// ask sends a request, and returns the status and the text of the answer.
func (s *site) ask(t *testing.T, method, path string, change ...func(*http.Request)) (status int, text string) {
	t.Helper()
	status, _, text = s.answer(t, method, path, change...)
	return status, text
}

// answer is like ask, and also returns the headers.
func (s *site) answer(t *testing.T, method, path string, change ...func(*http.Request)) (status int, h http.Header, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	require.NoError(t, err)
	for _, c := range change {
		c(r)
	}
	response, err := s.Client().Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(response.Body)
	require.NoError(t, err)
	return response.StatusCode, response.Header, body.String()
}

func header(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
}

func bearer(token string) func(*http.Request) { return header("Authorization", "Bearer "+token) }

func login(name, password string) func(*http.Request) {
	return func(r *http.Request) { r.SetBasicAuth(name, password) }
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

// authorized is the status of authorized requests to a dashboard without an outbox.
const authorized = http.StatusServiceUnavailable

func hashOf(t *testing.T, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	require.NoError(t, err)
	return string(hash)
}

func TestOnLoopbackWithoutUsersEveryoneIsAnOperator(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.Config{})
	status, _ := s.ask(t, "GET", "/")
	require.Equal(t, authorized, status)
	status, _ = s.ask(t, "POST", "/nothing")
	require.Equal(t, http.StatusNotFound, status, "the token may act")
}

func TestUnknownHostsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, withAccess(settings.Observe{Hosts: []string{"waybill.example"}}))
	for name, want := range map[string]int{
		"localhost": authorized, "LOCALHOST:8090": authorized, "127.0.0.1:1": authorized, "[::1]:8090": authorized, "127.3.2.1": authorized, "waybill.example": authorized, "Waybill.Example.:443": authorized,
		"attacker.example": 403, "127.0.0.1.attacker.example": 403, "10.0.0.1": 403, "localhost.attacker.example": 403, "notwaybill.example": 403, "[::2]": 403, "0.0.0.0": 403,
	} {
		status, text := s.ask(t, "GET", "/", host(name))
		require.Equal(t, want, status, "%s: %s", name, text)
	}
	require.Contains(t, s.log.String(), "observe.hosts")
}

func TestTheLocalAddressOfARequestIsAnAcceptedHost(t *testing.T) {
	t.Parallel()
	s := newSite(t, withAuth(settings.Auth{Tokens: tokens}))
	// The request seems to arrive at another address of the machine.
	at := func(address, host string) int {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://"+host+"/", nil)
		local := &net.TCPAddr{IP: net.ParseIP(address), Port: 8090}
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(local)))
		bearer(viewerToken)(r)
		w := httptest.NewRecorder()
		s.dashboard.ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(t, authorized, at("10.1.2.3", "10.1.2.3:8090"))
	require.Equal(t, authorized, at("::ffff:10.1.2.3", "10.1.2.3:8090"))
	require.Equal(t, authorized, at("fd00::1", "[fd00::1]:8090"))
	require.Equal(t, http.StatusForbidden, at("10.1.2.3", "10.1.2.4:8090"))
}

func TestOffLoopbackWithoutUsersNothingIsServed(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]int{
		"127.0.0.1:8090": authorized, "[::1]:8090": authorized, "localhost:8090": authorized, "127.0.0.2:8090": authorized,
		":8090": 403, "0.0.0.0:8090": 403, "[::]:8090": 403, "10.0.0.1:8090": 403, "waybill.example:8090": 403,
	} {
		s := newSite(t, withAccess(settings.Observe{Address: address}))
		status, text := s.ask(t, "GET", "/")
		require.Equal(t, want, status, "%s: %s", address, text)
		if want == http.StatusForbidden {
			require.Contains(t, text, "configure observe.auth")
			require.NoError(t, s.dashboard.Change(settings.Observe{Address: "127.0.0.1:8090"}))
			status, _ = s.ask(t, "GET", "/")
			require.Equal(t, want, status, "a change is not about the address")
		}
		s = newSite(t, withAccess(settings.Observe{Address: address, Auth: settings.Auth{Tokens: tokens}}))
		status, _ = s.ask(t, "GET", "/", bearer(viewerToken))
		require.Equal(t, authorized, status, address)
	}
}

func TestWithoutAnAddressConnectionsMustComeFromThisMachine(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.Config{})
	from := func(local, remote string) int {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/", nil)
		r.RemoteAddr = remote
		if local != "" {
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.ParseIP(local), Port: 1})))
		}
		w := httptest.NewRecorder()
		s.dashboard.ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(t, authorized, from("127.0.0.1", "127.0.0.1:2"))
	require.Equal(t, authorized, from("::1", "[::1]:2"))
	require.Equal(t, http.StatusForbidden, from("10.0.0.1", "127.0.0.1:2"))
	require.Equal(t, http.StatusForbidden, from("127.0.0.1", "10.0.0.1:2"))
	require.Equal(t, http.StatusForbidden, from("", "127.0.0.1:2"))
	require.Equal(t, http.StatusForbidden, from("127.0.0.1", "@"))
}

func TestWithoutUsersRequestsThroughAProxyAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.Config{})
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"} {
		status, text := s.ask(t, "GET", "/", header(name, "203.0.113.7"))
		require.Equal(t, http.StatusForbidden, status)
		require.Contains(t, text, "through a proxy")
	}
}

func TestRequestsOfAnotherOriginAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.Config{})
	for name, change := range map[string]func(*http.Request){
		"cross-site": header("Sec-Fetch-Site", "cross-site"),
		"same-site":  header("Sec-Fetch-Site", "same-site"),
		"origin":     header("Origin", "http://attacker.example"),
		"null":       header("Origin", "null"),
		"other port": header("Origin", "http://127.0.0.1:1"),
	} {
		status, _ := s.ask(t, "POST", "/nothing", change)
		require.Equal(t, http.StatusForbidden, status, name)
	}
	status, _ := s.ask(t, "POST", "/nothing", header("Origin", s.URL), header("Sec-Fetch-Site", "same-origin"))
	require.Equal(t, http.StatusNotFound, status)
}

var tokens = map[string]settings.Token{
	"ci":  {Token: viewerToken}, // a viewer
	"bot": {Token: operatorToken, Role: dashboard.Operator},
}

func TestOnlyOperatorsMayAct(t *testing.T) {
	t.Parallel()
	s := newSite(t, withAuth(settings.Auth{Tokens: tokens}))
	for _, path := range []string{"/", "/parked", "/api/v1/plans", "/nothing"} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "ANYTHING"} {
			status, text := s.ask(t, method, path, bearer(viewerToken))
			require.Equal(t, http.StatusForbidden, status, "%s %s", method, path)
			require.Contains(t, text, `role operator`)
			status, _ = s.ask(t, method, path, bearer(operatorToken))
			require.NotEqual(t, http.StatusForbidden, status, "%s %s", method, path)
		}
		status, _ := s.ask(t, "GET", path, bearer(viewerToken))
		require.NotEqual(t, http.StatusForbidden, status, path)
	}
	status, _ := s.ask(t, "POST", "/", header("X-HTTP-Method-Override", "GET"), bearer(viewerToken))
	require.Equal(t, http.StatusForbidden, status)
}

func TestUsersLogIn(t *testing.T) {
	t.Parallel()
	s := newSite(t, withAuth(settings.Auth{Users: map[string]settings.Login{
		"ada": {Password: "plain: ünd with a colon", Role: dashboard.Operator},
		"bob": {Password: hashOf(t, "hidden"), Role: dashboard.Viewer},
	}}))
	refused, h, _ := s.answer(t, "GET", "/")
	require.Equal(t, http.StatusUnauthorized, refused)
	require.Equal(t, `Basic realm="waybill", charset="UTF-8"`, h.Get("WWW-Authenticate"))
	require.Empty(t, s.log.String(), "a browser asks without a password first")
	for range 3 { // from the second time on, the remembered proof counts
		status, _ := s.ask(t, "POST", "/nothing", login("ada", "plain: ünd with a colon"))
		require.Equal(t, http.StatusNotFound, status)
		status, _ = s.ask(t, "GET", "/", login("bob", "hidden"))
		require.Equal(t, authorized, status)
	}
	status, _ := s.ask(t, "POST", "/nothing", login("bob", "hidden"))
	require.Equal(t, http.StatusForbidden, status)
	for name, change := range map[string]func(*http.Request){
		"wrong password":    login("ada", "hidden"),
		"wrong hash":        login("bob", "hidden2"),
		"the hash":          login("bob", hashOf(t, "hidden")),
		"no password":       login("ada", ""),
		"unknown":           login("eve with a password", "hidden"),
		"another's":         login("bob", "plain: ünd with a colon"),
		"a token, no users": bearer(viewerToken),
		"no name":           login("", ""),
	} {
		status, text := s.ask(t, "GET", "/", change)
		require.Equal(t, http.StatusUnauthorized, status, name)
		require.NotContains(t, text, "ada", name)
	}
	require.Contains(t, s.log.String(), `a wrong password for \"ada\"`)
	require.Contains(t, s.log.String(), "address=127.0.0.1")
	require.NotContains(t, s.log.String(), "eve with")
	require.NotContains(t, s.log.String(), "hidden")
	for _, malformed := range []string{"Basic", "Basic !!!", "Basic YWRh", "Digest x", " ", "Bearer"} {
		status, _ := s.ask(t, "GET", "/", header("Authorization", malformed))
		require.Equal(t, http.StatusUnauthorized, status, malformed)
	}
}

// The dashboard also compares the password of an unknown user by bcrypt, which takes milliseconds;
// everything else takes microseconds.
func TestTheTimeOfARefusalDoesNotRevealNames(t *testing.T) {
	t.Parallel()
	hash, err := bcrypt.GenerateFromPassword([]byte("hidden"), bcrypt.DefaultCost)
	require.NoError(t, err)
	s := newSite(t, withAuth(settings.Auth{Users: map[string]settings.Login{
		"ada": {Password: "plain", Role: dashboard.Operator}, "bob": {Password: string(hash), Role: dashboard.Viewer},
	}}))
	took := func(name string) time.Duration {
		shortest := time.Hour // the shortest counts, since the machine may be busy
		for range 3 {
			began := time.Now()
			status, _ := s.ask(t, "GET", "/", login(name, "wrong"))
			require.Equal(t, http.StatusUnauthorized, status)
			shortest = min(shortest, time.Since(began))
		}
		return shortest
	}
	bob := took("bob")
	for _, name := range []string{"ada", "nobody"} {
		require.Greater(t, took(name), bob/10, name)
	}
}

func TestATokenIsSentAsBearer(t *testing.T) {
	t.Parallel()
	s := newSite(t, withAuth(settings.Auth{Tokens: tokens}))
	for token, want := range map[string]int{viewerToken: authorized, viewerToken + "2": 401, strings.ToUpper(viewerToken): 401, "": 401} {
		status, _ := s.ask(t, "GET", "/", bearer(token))
		require.Equal(t, want, status, token)
	}
	status, h, text := s.answer(t, "GET", "/api/v1/sinks")
	require.Equal(t, http.StatusUnauthorized, status)
	require.Equal(t, "application/problem+json", h.Get("Content-Type"))
	require.JSONEq(t, `{"type": "about:blank", "title": "Unauthorized", "status": 401, "detail": "send a token"}`, text)
	require.Contains(t, h.Get("WWW-Authenticate"), "Bearer")
}

func TestOnlyAProxyNamesItsUsers(t *testing.T) {
	t.Parallel()
	proxy := settings.Proxy{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Role: "X-Forwarded-Groups"}
	s := newSite(t, withAccess(settings.Observe{Hosts: []string{"waybill.example"}, Auth: settings.Auth{Proxy: proxy}}))
	ada := header("X-Forwarded-User", "ada")
	for name, c := range map[string]struct {
		method string
		groups []string
		want   int
	}{
		"viewer looks": {"GET", nil, authorized}, "viewer acts": {"POST", nil, 403}, "operator": {"POST", []string{"dev, operator"}, 404}, "another group": {"POST", []string{"operators"}, 403},
		"twice": {"GET", []string{"dev", "operator"}, 403},
	} {
		status, text := s.ask(t, c.method, "/nothing", ada, header("X-Forwarded-Groups", c.groups...), host("waybill.example"), header("X-Forwarded-For", "203.0.113.7"))
		if c.want == authorized {
			c.want = http.StatusNotFound
		}
		require.Equal(t, c.want, status, "%s: %s", name, text)
	}
	for name, change := range map[string]func(*http.Request){
		"none": header("X-Other", "ada"), "empty": header("X-Forwarded-User", ""), "two": header("X-Forwarded-User", "ada", "eve"), "long": header("X-Forwarded-User", strings.Repeat("a", 201)),
	} {
		status, _ := s.ask(t, "GET", "/", change)
		require.Equal(t, http.StatusForbidden, status, name)
	}
	proxy.Networks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	s = newSite(t, withAuth(settings.Auth{Proxy: proxy, Tokens: tokens}))
	status, _ := s.ask(t, "GET", "/", ada, header("X-Forwarded-Groups", "operator"))
	require.Equal(t, http.StatusUnauthorized, status, "the header is ignored from other addresses")
	status, _ = s.ask(t, "POST", "/", ada, header("X-Forwarded-Groups", "operator"), bearer(viewerToken))
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, s.log.String(), `\"ci\" has the role viewer`)
}

func TestAnApplicationAuthorizesItsOwnUsers(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboard.Config{Prefix: "/admin/outbox", Authorize: func(r *http.Request) (dashboard.User, error) {
		switch name := r.Header.Get("X-Session"); name {
		case "ada":
			return dashboard.User{Name: name, Role: dashboard.Operator}, nil
		case "bob":
			return dashboard.User{Name: name, Role: dashboard.Viewer}, nil
		case "broken":
			return dashboard.User{Name: name, Role: dashboard.Operator}, errors.New("the session has ended")
		}
		return dashboard.User{}, nil
	}})
	for name, want := range map[string]int{"ada": 404, "bob": 403, "eve": 403, "broken": 403} {
		status, text := s.ask(t, "POST", "/admin/outbox/nothing", header("X-Session", name), host("shop.example"))
		require.Equal(t, want, status, "%s: %s", name, text)
		require.NotContains(t, text, "the session has ended")
	}
	require.Contains(t, s.log.String(), "the session has ended")
	status, text := s.ask(t, "GET", "/admin/outbox/", header("X-Session", "bob"))
	require.Equal(t, authorized, status)
	require.Contains(t, text, `href="/admin/outbox/`)
	status, _ = s.ask(t, "GET", "/", header("X-Session", "bob"))
	require.Equal(t, http.StatusNotFound, status)
}

func TestHeadersOfAllAnswers(t *testing.T) {
	t.Parallel()
	s := newSite(t, withAuth(settings.Auth{Tokens: tokens}))
	for _, change := range []func(*http.Request){bearer(viewerToken), bearer("wrong"), host("attacker.example")} {
		for _, path := range []string{"/", "/nothing", "/static/style.css", "/api/v1/nothing"} {
			_, h, _ := s.answer(t, "GET", path, change)
			require.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'", h.Get("Content-Security-Policy"))
			require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
			require.Equal(t, "same-origin", h.Get("Referrer-Policy"))
			require.Equal(t, "same-origin", h.Get("Cross-Origin-Opener-Policy"))
			require.NotEmpty(t, h.Get("Permissions-Policy"))
			require.Empty(t, h.Get("Strict-Transport-Security"))
		}
	}
}

func TestChangedAccessAppliesFromTheNextRequestOn(t *testing.T) {
	t.Parallel()
	s := newSite(t, withAuth(settings.Auth{Tokens: tokens}))
	next := map[string]settings.Token{"ci": {Token: "another token of a viewer", Role: dashboard.Viewer}}
	require.NoError(t, s.dashboard.Change(settings.Observe{Auth: settings.Auth{Tokens: next}}))
	status, _ := s.ask(t, "GET", "/", bearer(viewerToken))
	require.Equal(t, http.StatusUnauthorized, status)
	status, _ = s.ask(t, "GET", "/", bearer("another token of a viewer"))
	require.Equal(t, authorized, status)
	require.Error(t, s.dashboard.Change(settings.Observe{Auth: settings.Auth{Tokens: map[string]settings.Token{"ci": {Token: "short"}}}}))
	status, _ = s.ask(t, "GET", "/", bearer("another token of a viewer"))
	require.Equal(t, authorized, status)
}

func TestAMistakeInAConfigurationIsAnError(t *testing.T) {
	t.Parallel()
	authorize := func(*http.Request) (dashboard.User, error) { return dashboard.User{}, nil }
	for want, c := range map[string]dashboard.Config{
		"auth.users.ada.password is missing": withAuth(settings.Auth{Users: map[string]settings.Login{"ada": {}}}),
		`auth.users.ada.role is "admin"`:     withAuth(settings.Auth{Users: map[string]settings.Login{"ada": {Password: "secret", Role: "admin"}}}),
		"use either Authorize":               {Observe: settings.Observe{Auth: settings.Auth{Tokens: tokens}}, Authorize: authorize},
		`the prefix is "/"`:                  {Prefix: "/"},
		`the prefix is "admin"`:              {Prefix: "admin"},
		`the prefix is "/admin/"`:            {Prefix: "/admin/"},
		`the prefix is "/admin"`:             {Prefix: "/admin", List: func() []dashboard.Listed { return nil }},
	} {
		_, err := dashboard.New(c)
		require.ErrorContains(t, err, want)
	}
}

// A test that records a profile locks profiling, since a process records only one at a time.
var profiling sync.Mutex

func TestOnlyOperatorsGetProfilesIfTheyAreOn(t *testing.T) {
	t.Parallel()
	profiling.Lock()
	defer profiling.Unlock()
	status, _ := newSite(t, dashboard.Config{}).ask(t, "GET", "/debug/pprof/")
	require.Equal(t, http.StatusNotFound, status)
	s := newSite(t, withAccess(settings.Observe{Pprof: true, Auth: settings.Auth{Tokens: tokens}}))
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile"} {
		status, text := s.ask(t, "GET", path, bearer(viewerToken))
		require.Equal(t, http.StatusForbidden, status, path)
		require.Contains(t, text, "role operator")
	}
	for path, want := range map[string]string{
		"/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=1": "goroutine profile", "/debug/pprof/heap": "\x1f\x8b",
		"/debug/pprof/profile?seconds=0.01": "\x1f\x8b", "/debug/pprof/trace?seconds=0.01": "go 1.",
	} {
		status, text := s.ask(t, "GET", path, bearer(operatorToken))
		require.Equal(t, http.StatusOK, status, "%s: %s", path, text)
		require.Contains(t, text, want, path)
	}
	for path, want := range map[string]int{"/debug/pprof/nothing": 404, "/debug/pprof/profile?seconds=0": 400, "/debug/pprof/trace?seconds=1e9": 400, "/debug/pprof/trace?seconds=NaN": 400} {
		status, _ := s.ask(t, "GET", path, bearer(operatorToken))
		require.Equal(t, want, status, path)
	}
	// The profiles are not registered at http.DefaultServeMux.
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/debug/pprof/", nil)
	_, pattern := http.DefaultServeMux.Handler(r)
	require.Empty(t, pattern)
}
