package postgres_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

func TestAnAddressForPgxIsOneForTheStore(t *testing.T) {
	t.Parallel()
	for dsn, plain := range map[string]string{
		"postgres://u:p@h/d": "postgres://u:p@h/d",
		"postgres://u:p@h1:1,h2:2/d?sslmode=disable&pool_max_conns=4\r\n":   "postgres://u:p@h1:1,h2:2/d?sslmode=disable",
		"postgres://u:p@h/d?pool_max_conns=4&pool_max_conn_lifetime=1h":     "postgres://u:p@h/d",
		"postgres://h/d?default_query_exec_mode=exec&application_name=a%20": "postgres://h/d?application_name=a%20",
		"host=h pool_max_conns = 4 dbname=d":                                "host=h dbname=d",
		"pool_min_conns='1' host=h password='a pool_max_conns=4' \n":        "host=h password='a pool_max_conns=4'",
		`password=a\ pool_max_conns=4 statement_cache_capacity=0`:           `password=a\ pool_max_conns=4`,
		"dbname=d": "dbname=d",
	} {
		require.Equal(t, plain, postgres.PlainDSN(dsn), dsn)
		_, err := pq.NewConfig(plain)
		require.NoError(t, err)
	}
}

func TestTheStoreConnectsAndListensAtAnAddressForPgx(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	dsn += "&pool_max_conns=4"
	if !strings.Contains(dsn, "?") {
		dsn = strings.Replace(dsn, "&", "?", 1)
	}
	db, err := postgres.OpenDB(dsn + "\n")
	require.NoError(t, err)
	defer func(db *sql.DB) { require.NoError(t, db.Close()) }(db)
	_, err = postgres.Migrate(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	s, err := postgres.Open(t.Context(), db, postgres.Config{Listen: dsn})
	require.NoError(t, err)
	heard := make(chan store.News, 1)
	go func() {
		_ = s.Listen(t.Context(), func(n store.News) {
			select {
			case heard <- n:
			default:
			}
		})
	}()
	select {
	case <-heard:
	case <-time.After(30 * time.Second):
		t.Fatal("it should listen")
	}
}
