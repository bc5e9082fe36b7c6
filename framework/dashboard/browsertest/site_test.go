package browsertest

import (
	"database/sql"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// site is a dashboard of an outbox on PostgreSQL.
type site struct {
	db    *sql.DB
	store *postgres.Store
	url   string // for an operator
	view  string // for a viewer
	log   *logged
}

// logged keeps what the dashboard logs.
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

// as serves a handler for a user, and with the pages' Content-Security-Policy.
func as(t *testing.T, h http.Handler, u access.User) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'")
		h.ServeHTTP(w, r.WithContext(access.With(r.Context(), u)))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// newSite serves a dashboard of an empty outbox until the end of the test.
func newSite(t *testing.T) *site {
	t.Helper()
	db := postgrestest.New(t)
	_, err := postgres.Migrate(t.Context(), db, postgres.Config{Receipts: true})
	require.NoError(t, err)
	s, err := postgres.Open(t.Context(), db, postgres.Config{Receipts: true})
	require.NoError(t, err)
	log := &logged{}
	d, err := dashboard.New(dashboard.Config{
		Logger: slog.New(slog.NewTextHandler(log, nil)),
		Masks:  map[string][]string{"customer.*": {"$.email", "$.card.number"}},
	})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	t.Cleanup(d.Show(dashboard.Target{Store: s}))
	return &site{
		db: db, store: s, log: log,
		url:  as(t, d, access.User{Name: "ada", Role: access.Operator}),
		view: as(t, d, access.User{Name: "vic", Role: access.Viewer}),
	}
}

// exec runs statements on the site's database.
func (s *site) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		_, err := s.db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
}

// number is what a query counts.
func (s *site) number(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, s.db.QueryRowContext(t.Context(), query, args...).Scan(&n))
	return n
}
