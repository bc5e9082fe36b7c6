package doctor_test

import (
	"database/sql"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

func onMySQL(t *testing.T, db *sql.DB, c mysql.Config, only ...string) map[string]doctor.Finding {
	t.Helper()
	found := make(map[string]doctor.Finding)
	for _, f := range doctor.Run(t.Context(), doctor.Subject{DB: db, MySQL: &c}, doctor.Options{Only: only}) {
		found[f.ID] = f
	}
	return found
}

func TestAnOutboxInMySQLIsExamined(t *testing.T) {
	t.Parallel()
	db, err := mysql.OpenDB(mysqltest.DSN(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.Equal(t, "waybill migrate", onMySQL(t, db, mysql.Config{}, "schema")["schema"].Fix)
	_, err = mysql.Migrate(t.Context(), db, mysql.Config{})
	require.NoError(t, err)

	found := onMySQL(t, db, mysql.Config{})
	for _, id := range []string{"database", "schema", "log", "history", "clock", "connections", "timeouts", "prepared-transactions", "indexes", "retention"} {
		require.Equal(t, doctor.OK, found[id].Status, "%s: %s", id, found[id].Text)
	}
	require.Equal(t, doctor.Fail, found["durability"].Status, "test servers do not write twice")
	require.Equal(t, doctor.Skip, found["disk"].Status)
	require.NotContains(t, found, "listen")

	_, err = db.ExecContext(t.Context(), `DROP INDEX outbox_parked_due ON outbox_parked`)
	require.NoError(t, err)
	missing := onMySQL(t, db, mysql.Config{}, "indexes")["indexes"]
	require.Equal(t, doctor.Warn, missing.Status)
	_, err = db.ExecContext(t.Context(), missing.Fix)
	require.NoError(t, err, missing.Fix)
	require.Equal(t, doctor.OK, onMySQL(t, db, mysql.Config{}, "indexes")["indexes"].Status)
}

func TestAUserWithoutPROCESSIsToldOfIt(t *testing.T) {
	t.Parallel()
	dsn := mysqltest.DSN(t)
	db, err := mysql.OpenDB(dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = mysql.Migrate(t.Context(), db, mysql.Config{})
	require.NoError(t, err)
	low := mysqltest.User(t, db, "SELECT, INSERT, UPDATE, DELETE")
	config, err := driver.ParseDSN(dsn)
	require.NoError(t, err)
	config.User, config.Passwd = low, low
	unprivileged, err := mysql.OpenDB(config.FormatDSN())
	require.NoError(t, err)
	defer func() { require.NoError(t, unprivileged.Close()) }()

	for proof, want := range map[mysql.Proof]doctor.Status{mysql.ProofRequired: doctor.Fail, mysql.ProofGrace: doctor.Warn, mysql.ProofVoid: doctor.OK} {
		f := onMySQL(t, unprivileged, mysql.Config{WithoutProcess: proof}, "log")["log"]
		require.Equal(t, want, f.Status, "%s: %s", proof, f.Text)
	}
}
