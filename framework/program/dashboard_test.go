package program

import (
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/observe"
	"github.com/waybill-go/waybill/framework/program/internal/command"
)

// asked returns the status of a page, requested with a token.
func asked(t testing.TB, address, method, path, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	return response.StatusCode
}

func TestForwardServesTheDashboardToConfiguredUsers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		destination := newReceiver(t)
		path := o.config(t, "15s", destination.URL)
		address := observed(t, path)
		change := func(old, to string) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Contains(t, string(text), old)
			require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), old, to, 1)), 0o600))
		}
		secret := writeFile(t, "a token of a file\n")
		change(address+`"}`, address+`", pprof: true, auth: {tokens: {ci: {token: "file:`+secret+`"}, bot: {token: "a token of an operator", role: operator}}}}`)
		f := start(t, "forward", "-c", path)
		awaitPage(t, address, "/readyz", http.StatusOK, "ready")
		awaitPage(t, address, "/metrics", http.StatusOK, "waybill_")
		code, text := page(t, address, "/")
		require.Equal(t, http.StatusUnauthorized, code, text)
		for began := time.Now(); asked(t, address, "GET", "/", "a token of a file") == http.StatusServiceUnavailable; time.Sleep(20 * time.Millisecond) {
			require.Less(t, time.Since(began), patience, "waiting for the first sample")
		}
		require.Equal(t, http.StatusOK, asked(t, address, "GET", "/", "a token of a file"))
		require.Equal(t, http.StatusForbidden, asked(t, address, "POST", "/", "a token of a file"))
		require.Equal(t, http.StatusForbidden, asked(t, address, "GET", "/debug/pprof/", "a token of a file"))
		require.Equal(t, http.StatusOK, asked(t, address, "GET", "/debug/pprof/", "a token of an operator"))

		require.NoError(t, os.WriteFile(secret, []byte("another token of the same file\n"), 0o600))
		f.signal(t, syscall.SIGHUP)
		f.awaitLine(t, "routes=false databases=false schedules=false observe=true")
		require.Equal(t, http.StatusUnauthorized, asked(t, address, "GET", "/", "a token of a file"))
		require.Equal(t, http.StatusOK, asked(t, address, "GET", "/", "another token of the same file"))

		change("a token of an operator", "a token of an operator too")
		change("shutdown_timeout: 10s", "shutdown_timeout: 11s")
		f.signal(t, syscall.SIGHUP)
		f.awaitLine(t, "a new forwarder takes over")
		require.Equal(t, http.StatusUnauthorized, asked(t, address, "GET", "/", "a token of an operator"))
		require.Eventually(t, func() bool { return asked(t, address, "GET", "/", "a token of an operator too") == http.StatusOK }, patience, 20*time.Millisecond)

		change("a token of an operator too", "short")
		f.signal(t, syscall.SIGHUP)
		f.awaitLine(t, "observe.auth.tokens.bot.token is too short")
		require.Equal(t, http.StatusOK, asked(t, address, "GET", "/", "a token of an operator too"))
		f.signal(t, syscall.SIGTERM)
		require.Zero(t, f.wait())
	})
}

func TestTheDashboardShowsTheEngineAsItIsConfigured(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		path := o.config(t, "15s", "http://127.0.0.1:1/")
		p := &command.Invocation{Stdout: io.Discard, Stderr: io.Discard, Logger: slog.New(slog.DiscardHandler)}
		made, err := partsOf(nil)
		require.NoError(t, err)
		p.Options = made.Options
		p.Options.Logger = p.Logger
		f := &forward{Invocation: p, source: config.Source{File: path}, monitor: observe.New(observe.Config{})}
		c, err := f.observed()
		require.NoError(t, err)
		e, cleanup, err := newEngine(t.Context(), c, f.Options)
		require.NoError(t, err)
		defer cleanup()
		target := f.target(e)
		require.Equal(t, []string{"partner"}, target.Routing.Routes.Sinks("order.placed"))
		require.Zero(t, target.Routing.MaxAttempts("partner", "order.placed"), "no limit")
		text, err := target.Configuration()
		require.NoError(t, err)
		require.Contains(t, string(text), "lease: 15s")
		found := target.Doctor(t.Context(), "schema", "lanes")
		require.Len(t, found, 2)
		for _, finding := range found {
			require.NotEqual(t, doctor.Fail, finding.Status, finding.Text)
		}
		require.NoError(t, os.Remove(path))
		require.Equal(t, doctor.Fail, target.Doctor(t.Context())[0].Status)
		again, err := target.Configuration()
		require.NoError(t, err)
		require.Equal(t, text, again, "the configuration in effect, even if the file has changed")
	})
}

func TestAPasswordIsHashed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"hunter2", "hunter2\n", "hunter2\r\nmore"} {
		r := answer(t, text, "config", "password")
		require.Zero(t, r.code, r.stderr)
		require.NoError(t, bcrypt.CompareHashAndPassword([]byte(strings.TrimSpace(r.stdout)), []byte("hunter2")))
		_, err := config.Load(config.Source{File: writeFile(t, "database: sqlite:x.db\nsinks: {a: {kind: jsonlines, with: {path: x}}}\nroutes: {\"*\": [a]}\nobserve: {address: \"127.0.0.1:8090\", auth: {users: {ada: {password: \""+strings.TrimSpace(r.stdout)+"\"}}}}\n")}, config.Options{Kinds: ownKinds(t)})
		require.NoError(t, err)
	}
	for _, text := range []string{"", "\nhunter2", strings.Repeat("a", 73)} {
		require.Equal(t, exitUsage, answer(t, text, "config", "password").code)
	}
}
