package mysql_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

func TestMain(m *testing.M) { mysqltest.Main(m) }

// newDB opens an empty database as the program does.
func newDB(t testing.TB) *sql.DB {
	t.Helper()
	return openDB(t, mysqltest.DSN(t))
}

func openDB(t testing.TB, address string) *sql.DB {
	t.Helper()
	db, err := mysql.OpenDB(address)
	require.NoError(t, err)
	db.SetMaxOpenConns(60)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// openStore migrates the database and opens the store.
func openStore(t testing.TB, db *sql.DB, c mysql.Config) *mysql.Store {
	t.Helper()
	_, err := mysql.Migrate(t.Context(), db, c)
	require.NoError(t, err)
	s, err := mysql.Open(t.Context(), db, c)
	require.NoError(t, err)
	return s
}
