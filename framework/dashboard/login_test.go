package dashboard_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/settings"
)

var (
	loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	ada      = map[string]settings.Login{"ada": {Password: hash("right"), Role: dashboard.Operator}, "bob": {Password: hash("of bob")}}
)

// hash hashes at the least cost, so that a guess takes no time.
func hash(password string) string {
	h, _ := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	return string(h)
}

// from names the client of a request as a proxy does.
func from(address string) func(*http.Request) {
	return header("X-Forwarded-For", "198.51.100.1, "+address)
}

// guesses sends wrong passwords at once, and returns how many of them were compared.
func (s *site) guesses(t *testing.T, paths ...string) (compared int) {
	t.Helper()
	var mu sync.Mutex
	var work sync.WaitGroup
	for i := range 30 {
		work.Go(func() {
			status, _ := s.ask(t, "GET", paths[i%len(paths)], login("ada", fmt.Sprint(i)), from("203.0.113.7"))
			mu.Lock()
			defer mu.Unlock()
			if status == http.StatusUnauthorized {
				compared++
			}
		})
	}
	work.Wait()
	return compared
}

// mostCompared is how many of the guesses may be compared: 10, and another one every 6 seconds on a slow machine.
const mostCompared = 20

// limited guesses until a login is refused, too, and returns the headers of that answer. On a machine that
// stalls, another login is allowed soon, and a guess that waits for others for too long does not count.
func (s *site) limited(t *testing.T, why string, change ...func(*http.Request)) (h http.Header) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.guesses(t, "/")
		var status int
		status, h, _ = s.answer(t, "GET", "/", change...)
		return status == http.StatusTooManyRequests
	}, time.Minute, time.Millisecond, why)
	return h
}

func TestTooManyFailedLoginsAreRefused(t *testing.T) {
	t.Parallel()
	for name, access := range map[string]settings.Observe{
		"a proxy":                   {Auth: settings.Auth{Users: ada}, Proxies: loopback},
		"a proxy that names users":  {Auth: settings.Auth{Users: ada, Proxy: settings.Proxy{Networks: loopback}}},
		"a proxy that is not known": {Auth: settings.Auth{Users: ada}},
	} {
		s := newSite(t, withAccess(access))
		require.LessOrEqual(t, s.guesses(t, "/"), mostCompared, name)
		h := s.limited(t, name+": even the right password, which would otherwise reveal itself", login("ada", "right"), from("203.0.113.7"))
		require.NotEmpty(t, h.Get("Retry-After"))
	}
}

func TestFailedLoginsOfOneClientDoNotLockOutOthersBehindItsProxy(t *testing.T) {
	t.Parallel()
	s := newSite(t, withAccess(settings.Observe{Proxies: loopback, Auth: settings.Auth{Users: ada}}))
	s.guesses(t, "/")
	for _, client := range []string{"203.0.113.8", "203.0.113.8:49152", "2001:db8::1", "[2001:db8::1]:443"} {
		status, _ := s.ask(t, "GET", "/", login("ada", "right"), from(client))
		require.Equal(t, authorized, status, client)
	}
	status, _ := s.ask(t, "GET", "/", header("X-Forwarded-User", "eve"), from("203.0.113.8"))
	require.Equal(t, http.StatusUnauthorized, status, "its header of the user is not believed")
}

func TestAClientCannotChooseTheAddressForWhichItsFailuresCount(t *testing.T) {
	t.Parallel()
	s := newSite(t, withAccess(settings.Observe{Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Auth: settings.Auth{Users: ada}}))
	limited := 0
	for i := range 20 {
		status, _ := s.ask(t, "GET", "/", login("ada", "wrong"), from(fmt.Sprint("203.0.113.", i)))
		if status == http.StatusTooManyRequests {
			limited++
		}
	}
	require.NotZero(t, limited)
}

func TestTokensWorkWhileLoginsAreLimited(t *testing.T) {
	t.Parallel()
	s := newSite(t, withAuth(settings.Auth{Users: ada, Tokens: tokens}))
	s.guesses(t, "/")
	for i := range 20 {
		status, _ := s.ask(t, "GET", "/", bearer(fmt.Sprint("a wrong token, number ", i)))
		require.Equal(t, http.StatusUnauthorized, status)
	}
	status, _ := s.ask(t, "GET", "/", bearer(viewerToken))
	require.Equal(t, authorized, status)
}

func TestABrowserThatHasLoggedInIsNotLockedOut(t *testing.T) {
	t.Parallel()
	s := newSite(t, withAuth(settings.Auth{Users: ada}))
	my, her := login("ada", "right"), login("bob", "of bob")
	cookie := func(of func(*http.Request)) func(*http.Request) {
		status, h, _ := s.answer(t, "GET", "/", of)
		require.Equal(t, authorized, status)
		value, _, _ := strings.Cut(h.Get("Set-Cookie"), ";")
		return header("Cookie", value)
	}
	mine, hers := cookie(my), cookie(her)
	s.limited(t, "without a cookie", my)
	status, _ := s.ask(t, "GET", "/", my, mine)
	require.Equal(t, authorized, status)
	status, _ = s.ask(t, "GET", "/", her, hers)
	require.Equal(t, authorized, status)
	s.limited(t, "a cookie is for one name and password", my, hers)
	s.limited(t, "a cookie is no password", login("ada", "wrong"), mine)
	s.limited(t, "a change does not reset the limit", my, func(*http.Request) {
		require.NoError(t, s.dashboard.Change(settings.Observe{Auth: settings.Auth{Users: ada}}))
	})
}

func TestTheCookieOfALoginIsForTheDashboardOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t, withAuth(settings.Auth{Users: ada, Tokens: tokens}))
	cookie := func(change ...func(*http.Request)) string {
		_, h, _ := s.answer(t, "GET", "/", change...)
		return h.Get("Set-Cookie")
	}
	require.Regexp(t, `^waybill-login=[0-9a-f]{64}; Path=/; HttpOnly; SameSite=Strict$`, cookie(login("ada", "right")))
	require.Contains(t, cookie(login("ada", "right"), header("X-Forwarded-Proto", "https")), "; Secure;")
	require.Empty(t, cookie(login("ada", "wrong")))
	require.Empty(t, cookie(bearer(viewerToken)))
	require.Empty(t, cookie())
	_, text := s.ask(t, "GET", "/", header("Cookie", cookie(login("ada", "right"))))
	require.Contains(t, text, "log in", "it lets no one in")
}

func TestGuessesFromManyAddressesCountForTheUser(t *testing.T) {
	t.Parallel()
	s := newSite(t, withAccess(settings.Observe{Proxies: loopback, Auth: settings.Auth{Users: ada}}))
	for _, name := range []string{"ada", "nobody"} {
		limited := 0
		for i := range 60 {
			status, _ := s.ask(t, "GET", "/", login(name, "wrong"), from(fmt.Sprintf("203.0.%d.7", i)))
			if status == http.StatusTooManyRequests {
				limited++
			}
		}
		require.NotZero(t, limited, name)
	}
	status, _ := s.ask(t, "GET", "/", login("bob", "of bob"), from("203.0.113.8"))
	require.Equal(t, authorized, status, "another user")
}

// fleet is a dashboard of three databases.
func fleet(t *testing.T, a settings.Auth) *site {
	t.Helper()
	c := withAuth(a)
	c.List = func() []dashboard.Listed {
		return []dashboard.Listed{{Name: "ta"}, {Name: "tb"}, {Name: "../?"}, {Name: "tc"}}
	}
	c.Open = func(string) (dashboard.Target, bool) { return dashboard.Target{}, false }
	s := newSite(t, c)
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

func TestAllDatabasesOfAFleetShareTheLimitOfFailedLogins(t *testing.T) {
	t.Parallel()
	s := fleet(t, settings.Auth{Users: ada})
	require.LessOrEqual(t, s.guesses(t, "/in/ta/", "/in/tb/", "/in/tc/"), mostCompared)
}

func TestNobodyLearnsTheNamesOfDatabasesWithoutALogin(t *testing.T) {
	t.Parallel()
	s := fleet(t, settings.Auth{Tokens: tokens})
	for _, path := range []string{"/", "/in/ta/", "/in/no-such/", "/in/ta", "/in/ta/static/waybill.css", "/in/no-such/api/v1/status", "/nothing"} {
		status, h, text := s.answer(t, "GET", path)
		require.Equal(t, http.StatusUnauthorized, status, path)
		require.NotContains(t, fmt.Sprint(h, text), "tb", path)
		require.Empty(t, h.Get("Location"), path)
	}
	status, h, _ := s.answer(t, "GET", "/", bearer(viewerToken))
	require.Equal(t, http.StatusSeeOther, status)
	require.Equal(t, "/in/ta/databases", h.Get("Location"))
	status, h, _ = s.answer(t, "GET", "/in/ta/api/v1/status")
	require.Equal(t, http.StatusUnauthorized, status)
	require.Equal(t, "application/problem+json", h.Get("Content-Type"))
}

func TestADatabaseOfAFleetIsReachedByItsNameOnly(t *testing.T) {
	t.Parallel()
	s := fleet(t, settings.Auth{Tokens: tokens})
	for path, want := range map[string]int{
		"/in/ta/": authorized, "/in/TA/": 404, "/in//ta/": 404, "/in/..": 404, "/in/../ta/": 404, "/in/ta/../tb/": 404, "/in/ta%2f..%2ftb/": 404, "/in/%2e%2e/ta": 404, "/in/%2e%2e%2f%3f/": 404, "/in/": 404, "/in": 404, "//evil.example/in/ta": 404,
	} {
		status, h, _ := s.answer(t, "GET", path, bearer(viewerToken))
		require.Equal(t, want, status, "%s %s", path, h)
		require.NotContains(t, h.Get("Location"), "evil", path)
	}
	require.NotContains(t, strings.ToLower(s.log.String()), "panic")
}
