package dashboard_test

import (
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// show makes the site show an outbox with the sink mail.
func (s *site) show(t *testing.T) *sqlite.Store {
	t.Helper()
	_, outbox := outboxtest.SQLite(t, outboxtest.File(t), sqlite.Config{})
	_, err := outbox.Cut(t.Context(), "mail", 1, store.StartOldest)
	require.NoError(t, err)
	s.dashboard.Show(dashboard.Target{Store: outbox})
	t.Cleanup(s.dashboard.Close) // before the database
	return outbox
}

func body(kind, text string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("Content-Type", kind)
		r.Body = io.NopCloser(strings.NewReader(text))
	}
}

func TestActionsOfPagesAndOfTheAPIKeepTheAddressOfTheClient(t *testing.T) {
	t.Parallel()
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	elsewhere := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for name, c := range map[string]struct {
		config dashboard.Config
		want   string
	}{
		"behind trusted proxies": {withAuth(settings.Auth{Proxy: settings.Proxy{Networks: loopback}, Tokens: tokens}), "203.0.113.7"},
		"not through the proxy":  {withAuth(settings.Auth{Proxy: settings.Proxy{Networks: elsewhere}, Tokens: tokens}), "127.0.0.1"},
		"as the application says": {dashboard.Config{Authorize: func(*http.Request) (dashboard.User, error) {
			return dashboard.User{Name: "ada", Role: dashboard.Operator, Address: "2001:db8::7"}, nil
		}}, "2001:db8::7"},
		"as the server sees it": {dashboard.Config{Authorize: func(*http.Request) (dashboard.User, error) {
			return dashboard.User{Name: "ada", Role: dashboard.Operator}, nil
		}}, "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, c.config)
			outbox := s.show(t)
			from := header("X-Forwarded-For", "198.51.100.1, 203.0.113.7, 10.1.2.3")
			for _, act := range []struct{ path, kind, body string }{
				{"/sinks/mail/pause", "application/x-www-form-urlencoded", "confirmed=yes&reason=OPS-7"},
				{"/api/v1/sinks/mail/resume", "application/json", `{"reason": "OPS-7"}`},
				{"/api/v1/actions", "application/json", `{"action": "discard", "filter": {}, "expect": 0, "reason": "OPS-7"}`},
			} {
				_, text := s.ask(t, http.MethodPost, act.path, bearer(operatorToken), from, body(act.kind, act.body))
				require.NotContains(t, text, "problem", text)
			}
			actions, err := admin.New(outbox, "").Actions(t.Context(), 10)
			require.NoError(t, err)
			require.Len(t, actions, 3)
			for _, a := range actions {
				require.Equal(t, []string{c.want, "OPS-7"}, []string{a.Address, a.Reason}, a.Name)
			}
		})
	}
}
