package mysqltest_test

import (
	"database/sql"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := mysqltest.Stop(); err != nil {
		panic(err)
	}
	if err := goleak.Find(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	for range 2 {
		db, err := sql.Open("mysql", mysqltest.DSN(t))
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		_, err = db.ExecContext(t.Context(), `CREATE TABLE t (n INT)`)
		require.NoError(t, err)
	}
}

func TestAKilledServerComesUpWithWhatWasCommitted(t *testing.T) {
	t.Parallel()
	mysqltest.Shared(t) // skips the test if no server is available
	s, err := mysqltest.Start(t.Context(), mysqltest.Options{Private: true, Durable: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop()) }()
	name, _, err := s.CreateDatabase(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Execute(t.Context(), `CREATE TABLE `+name+`.t (n INT)`))
	require.NoError(t, s.Execute(t.Context(), `INSERT INTO `+name+`.t VALUES (1)`))
	require.NoError(t, s.Kill())
	require.Error(t, s.Execute(t.Context(), `SELECT 1`))
	require.NoError(t, s.Up(t.Context()))
	db, err := sql.Open("mysql", s.DSN(name))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	n := 0
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM t`).Scan(&n))
	require.Equal(t, 1, n)
}
