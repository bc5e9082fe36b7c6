package browsertest

import (
	"context"
	"database/sql"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// site is a dashboard of an outbox on PostgreSQL.
type site struct {
	db     *sql.DB
	store  *postgres.Store
	url    string // for an operator
	viewer string // for a viewer
	server *httptest.Server
	log    *logged
}

// logged keeps the log lines of a dashboard.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newSite serves a dashboard of an empty outbox until the end of the test. prepare may add to the outbox
// and to the target.
func newSite(t *testing.T, prepare ...func(s *site, target *dashboard.Target)) *site {
	t.Helper()
	db := postgrestest.New(t)
	_, err := postgres.Migrate(t.Context(), db, postgres.Config{Receipts: true})
	require.NoError(t, err)
	s := &site{db: db, log: &logged{}}
	s.store, err = postgres.Open(t.Context(), db, postgres.Config{Receipts: true})
	require.NoError(t, err)
	target := dashboard.Target{Store: s.store}
	for _, prepare := range prepare {
		prepare(s, &target)
	}
	d := s.show(t, target)
	s.server = httptest.NewServer(as(dashboard.User{Name: "ada", Role: dashboard.Operator}, d))
	viewing := httptest.NewServer(as(dashboard.User{Name: "vic", Role: dashboard.Viewer}, d))
	t.Cleanup(func() {
		d.Close()
		s.server.Close()
		viewing.Close()
	})
	s.url, s.viewer = s.server.URL, viewing.URL
	return s
}

// serve serves the site's outbox with the target t to a user with a role, and returns the address.
func (s *site) serve(t *testing.T, role settings.Role, target dashboard.Target) string {
	t.Helper()
	target.Store = s.store
	d := s.show(t, target)
	server := httptest.NewServer(as(dashboard.User{Name: "ada", Role: role}, d))
	t.Cleanup(func() {
		d.Close()
		server.Close()
	})
	return server.URL
}

// show returns a dashboard whose user is that of as.
func (s *site) show(t *testing.T, target dashboard.Target) *dashboard.Dashboard {
	t.Helper()
	d, err := dashboard.New(dashboard.Config{
		Logger:  slog.New(slog.NewTextHandler(s.log, nil)),
		Observe: settings.Observe{Masks: map[string][]string{"customer.*": {"email", "card.number"}}},
		Authorize: func(r *http.Request) (dashboard.User, error) {
			return r.Context().Value(userKey{}).(dashboard.User), nil
		},
	})
	require.NoError(t, err)
	t.Cleanup(d.Show(target))
	return d
}

type userKey struct{}

// as returns a configuration that serves everyone as a user with a role.
func as(u dashboard.User, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, u)))
	})
}

func (s *site) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	_, err := s.db.ExecContext(t.Context(), query, args...)
	require.NoError(t, err)
}

// number returns the number that a query counts.
func (s *site) number(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, s.db.QueryRowContext(t.Context(), query, args...).Scan(&n))
	return n
}
