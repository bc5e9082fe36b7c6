package browsertest

import (
	"database/sql"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// site is a dashboard of an outbox on PostgreSQL.
type site struct {
	db    *sql.DB
	store *postgres.Store
	url   string
}

// newSite serves a dashboard of an empty outbox until the end of the test.
func newSite(t *testing.T) *site {
	t.Helper()
	db := postgrestest.New(t)
	_, err := postgres.Migrate(t.Context(), db, postgres.Config{Receipts: true})
	require.NoError(t, err)
	s, err := postgres.Open(t.Context(), db, postgres.Config{Receipts: true})
	require.NoError(t, err)
	d, err := dashboard.New(dashboard.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(d.Show(dashboard.Target{Store: s}))
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	return &site{db: db, store: s, url: server.URL}
}
