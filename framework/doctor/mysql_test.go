package doctor_test

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

func onMySQL(t *testing.T, db *sql.DB, c mysql.Config, only ...string) map[string]doctor.Finding {
	t.Helper()
	found := make(map[string]doctor.Finding)
	for _, f := range doctor.Run(t.Context(), doctor.Subject{DB: db, MySQL: &c}, doctor.Options{Only: only, Timeout: time.Minute}) {
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
	for _, id := range []string{"database", "schema", "log", "history", "clock", "connections", "timeouts", "held-transactions", "prepared-transactions", "packet-size", "privileges", "indexes", "retention"} {
		require.Equal(t, doctor.OK, found[id].Status, "%s: %s", id, found[id].Text)
	}
	require.Equal(t, doctor.Fail, found["durability"].Status, "test servers have no doublewrite buffer")
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

func TestAUserWithoutPROCESSIsFound(t *testing.T) {
	t.Parallel()
	dsn := mysqltest.DSN(t)
	db, err := mysql.OpenDB(dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = mysql.Migrate(t.Context(), db, mysql.Config{})
	require.NoError(t, err)
	low := mysqltest.User(t, db, "SELECT, INSERT, UPDATE, DELETE")
	unprivileged := connect(t, dsn, low)

	for proof, want := range map[mysql.Proof]doctor.Status{mysql.ProofRequired: doctor.Fail, mysql.ProofVoid: doctor.OK} {
		f := onMySQL(t, unprivileged, mysql.Config{WithoutProcess: proof}, "log")["log"]
		require.Equal(t, want, f.Status, "%s: %s", proof, f.Text)
	}
}

// connect opens the database as a user whose password is the user's name.
func connect(t *testing.T, dsn, user string) *sql.DB {
	t.Helper()
	config, err := driver.ParseDSN(dsn)
	require.NoError(t, err)
	config.User, config.Passwd = user, user
	db, err := mysql.OpenDB(config.FormatDSN())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func TestTheFixOfMissingPrivilegesOnMySQLIsTheirGrants(t *testing.T) {
	t.Parallel()
	dsn := mysqltest.DSN(t)
	db, err := mysql.OpenDB(dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = mysql.Migrate(t.Context(), db, mysql.Config{})
	require.NoError(t, err)
	for _, duty := range postgres.Duties() {
		user := mysqltest.User(t, db, "CREATE VIEW") // no duty needs this privilege
		look := func(db *sql.DB, duty postgres.Duty) doctor.Finding {
			s := doctor.Subject{DB: db, MySQL: &mysql.Config{}, Duty: duty}
			return doctor.Run(t.Context(), s, doctor.Options{Only: []string{"privileges"}, Timeout: time.Minute})[0]
		}
		f := look(connect(t, dsn, user), duty)
		require.Equal(t, doctor.Fail, f.Status, "%s: %s", duty, f.Text)
		printed, err := mysql.Grants(mysql.Config{}, user, string(duty))
		require.NoError(t, err)
		require.Equal(t, strings.TrimSpace(printed), f.Fix, "the user lacks all privileges of the duty")
		grants := strings.Split(f.Fix, "\n")
		for i, grant := range grants {
			_, err := db.ExecContext(t.Context(), grant)
			require.NoError(t, err, grant)
			f = look(connect(t, dsn, user), duty)
			require.Equal(t, strings.Join(grants[i+1:], "\n"), f.Fix)
		}
		require.Equal(t, doctor.OK, f.Status, "%s: %s", duty, f.Text)
	}
}

func TestALongTransactionOnMySQLIsFound(t *testing.T) {
	t.Parallel()
	db, err := mysql.OpenDB(mysqltest.DSN(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = mysql.Migrate(t.Context(), db, mysql.Config{})
	require.NoError(t, err)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), `INSERT INTO outbox (type, payload) VALUES ('a', '{}')`)
	require.NoError(t, err)
	var session int64
	require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT CONNECTION_ID()`).Scan(&session))
	kill := fmt.Sprintf("KILL %d;", session)
	held := func(after time.Duration) string {
		options := doctor.Options{Only: []string{"held-transactions"}, HeldAfter: after, Timeout: time.Minute}
		return doctor.Run(t.Context(), doctor.Subject{DB: db, MySQL: &mysql.Config{}}, options)[0].Fix
	}
	require.Eventually(t, func() bool { return strings.Contains(held(time.Millisecond), kill) }, 30*time.Second, 200*time.Millisecond,
		"the server caches its list of transactions for a moment")
	require.NotContains(t, held(time.Hour), kill)
	_, err = db.ExecContext(t.Context(), kill)
	require.NoError(t, err)
	require.Error(t, tx.Commit())
	require.Eventually(t, func() bool { return !strings.Contains(held(time.Millisecond), kill) }, 30*time.Second, 200*time.Millisecond)
}

func TestWhatIsWrongWithAMySQLServerIsFound(t *testing.T) {
	t.Parallel()
	mysqltest.Shared(t) // skips the test if no server is available
	server, err := mysqltest.Start(t.Context(), mysqltest.Options{Private: true, Durable: true, Settings: map[string]string{
		"log-bin": "binlog", "sync_binlog": "1", "innodb_autoinc_lock_mode": "1",
	}})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop()) }()
	name, _, err := server.CreateDatabase(t.Context())
	require.NoError(t, err)
	db, err := mysql.OpenDB(server.DSN(name))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = mysql.Migrate(t.Context(), db, mysql.Config{})
	require.NoError(t, err)
	require.Equal(t, doctor.OK, onMySQL(t, db, mysql.Config{}, "durability")["durability"].Status)
	mode := onMySQL(t, db, mysql.Config{}, "log")["log"]
	require.Equal(t, doctor.Warn, mode.Status)
	require.Contains(t, mode.Text, "innodb_autoinc_lock_mode is 1")

	for _, c := range []struct {
		set, check string
		want       doctor.Status
		text       string
	}{
		{`innodb_flush_log_at_trx_commit = 2`, "durability", doctor.Warn, "innodb_flush_log_at_trx_commit is 2"},
		{`sync_binlog = 0`, "durability", doctor.Warn, "sync_binlog is 0"},
		{`max_allowed_packet = 1048576`, "packet-size", doctor.Warn, "max_allowed_packet is 1 MiB"},
		{`wait_timeout = 5`, "timeouts", doctor.Warn, "wait_timeout is 5s"},
		{`binlog_format = 'STATEMENT'`, "log", doctor.Fail, "binlog_format is STATEMENT"},
	} {
		variable, _, _ := strings.Cut(c.set, " ")
		var before string
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT @@global.`+variable).Scan(&before))
		require.NoError(t, server.Execute(t.Context(), `SET GLOBAL `+c.set))
		f := onMySQL(t, db, mysql.Config{}, c.check)[c.check]
		require.Equal(t, c.want, f.Status, "%s: %s", c.set, f.Text)
		require.Contains(t, f.Text, c.text)
		if variable == "binlog_format" {
			fresh, err := mysql.OpenDB(server.DSN(name))
			require.NoError(t, err)
			_, err = fresh.ExecContext(t.Context(), `INSERT INTO outbox (type, payload) VALUES ('a', '{}')`)
			require.Error(t, err, "the finding is right: the server refuses the statement")
			require.NoError(t, fresh.Close())
		}
		if _, err := strconv.Atoi(before); err != nil {
			before = `'` + before + `'`
		}
		require.NoError(t, server.Execute(t.Context(), `SET GLOBAL `+variable+` = `+before))
		require.NotEqual(t, f.Text, onMySQL(t, db, mysql.Config{}, c.check)[c.check].Text)
	}

	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	for _, statement := range []string{`XA START 'for''gotten'`, `INSERT INTO outbox (type, payload) VALUES ('a', '{}')`, `XA END 'for''gotten'`, `XA PREPARE 'for''gotten'`} {
		_, err := conn.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	f := onMySQL(t, db, mysql.Config{}, "prepared-transactions")["prepared-transactions"]
	require.Equal(t, doctor.Warn, f.Status)
	_, err = conn.ExecContext(t.Context(), f.Fix)
	require.NoError(t, err, f.Fix)
	require.NoError(t, conn.Close())
	require.Equal(t, doctor.OK, onMySQL(t, db, mysql.Config{}, "prepared-transactions")["prepared-transactions"].Status)
}
