package browsertest

import (
	"database/sql"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// policy is the Content-Security-Policy that the pages are served with.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"

// site is a dashboard of an outbox on PostgreSQL.
type site struct {
	db     *sql.DB
	store  *postgres.Store
	url    string // for an operator
	viewer string // for one who may only look
	server *httptest.Server
}

// newSite serves a dashboard of an outbox until the end of the test. The outbox is empty, unless
// prepare changes that, which may also add to the target.
func newSite(t *testing.T, prepare ...func(s *site, target *dashboard.Target)) *site {
	t.Helper()
	db := postgrestest.New(t)
	_, err := postgres.Migrate(t.Context(), db, postgres.Config{Receipts: true})
	require.NoError(t, err)
	s := &site{db: db}
	s.store, err = postgres.Open(t.Context(), db, postgres.Config{Receipts: true})
	require.NoError(t, err)
	d, err := dashboard.New(dashboard.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	target := dashboard.Target{Store: s.store}
	for _, prepare := range prepare {
		prepare(s, &target)
	}
	t.Cleanup(d.Show(target))
	s.server = httptest.NewServer(as(access.User{Name: "ada", Role: access.Operator}, d))
	viewing := httptest.NewServer(as(access.User{Name: "vic", Role: access.Viewer}, d))
	t.Cleanup(func() {
		d.Close()
		s.server.Close()
		viewing.Close()
	})
	s.url, s.viewer = s.server.URL, viewing.URL
	return s
}

// as serves a user.
func as(u access.User, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		h.ServeHTTP(w, r.WithContext(access.With(r.Context(), u)))
	})
}
