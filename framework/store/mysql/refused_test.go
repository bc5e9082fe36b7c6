package mysql_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
	"github.com/waybill-go/waybill/framework/store/storetest"
)

func TestOldServersAndOtherKindsAreRefused(t *testing.T) {
	t.Parallel()
	for version, says := range map[string]string{
		"8.0.17": "", "8.4.2": "", "9.1.0": "", "10.6.0-MariaDB": "", "10.11.19-MariaDB-0+deb12u1": "", "5.5.5-11.4.2-MariaDB-log": "",
		"8.0.16": "8.0.17", "5.7.44-log": "8.0.17", "10.5.28-MariaDB": "10.6", "5.5.5-10.3.39-MariaDB": "10.6",
		"8.0.11-TiDB-v7.5.0": "InnoDB", "8.0.30-Vitess": "InnoDB", "none": "none",
	} {
		err := mysql.CheckVersion(version)
		if says == "" {
			require.NoError(t, err, version)
			continue
		}
		require.ErrorIs(t, err, store.ErrUnsupported, version)
		require.ErrorContains(t, err, says, version)
	}
}

func TestServersOnWhichRowsWouldBeLostAreRefused(t *testing.T) {
	t.Parallel()
	mysqltest.Shared(t) // skips the test if no server is available
	s, err := mysqltest.Start(t.Context(), mysqltest.Options{Private: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop()) }()
	name, _, err := s.CreateDatabase(t.Context())
	require.NoError(t, err)
	db, err := mysql.OpenDB(s.DSN(name))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	openStore(t, db, mysql.Config{})
	for _, c := range []struct{ set, back, says string }{
		{`SET GLOBAL auto_increment_increment = 2`, `SET GLOBAL auto_increment_increment = 1`, "SET GLOBAL auto_increment_increment = 1"},
		{`SET GLOBAL auto_increment_offset = 2`, `SET GLOBAL auto_increment_offset = 1`, "SET GLOBAL auto_increment_offset = 1"},
		{`SET GLOBAL read_only = ON`, `SET GLOBAL read_only = OFF`, "name the primary"},
	} {
		require.NoError(t, s.Execute(t.Context(), c.set))
		_, err := mysql.Open(t.Context(), db, mysql.Config{})
		require.ErrorIs(t, err, store.ErrUnsupported, c.set)
		require.ErrorContains(t, err, c.says)
		require.NoError(t, s.Execute(t.Context(), c.back))
	}
	_, err = mysql.Open(t.Context(), db, mysql.Config{})
	require.NoError(t, err)
}

// A server that is configured for a cluster reports that even before it joins one.
func TestAServerOfAGaleraClusterIsRefused(t *testing.T) {
	t.Parallel()
	mysqltest.Shared(t) // skips the test if no server is available
	s, err := mysqltest.Start(t.Context(), mysqltest.Options{Family: mysqltest.MariaDB, Private: true, Settings: map[string]string{"wsrep_on": "ON", "binlog_format": "ROW"}})
	if errors.Is(err, mysqltest.ErrNoServer) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop()) }()
	name, _, err := s.CreateDatabase(t.Context())
	require.NoError(t, err)
	db, err := mysql.OpenDB(s.DSN(name))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = mysql.Open(t.Context(), db, mysql.Config{})
	require.ErrorIs(t, err, store.ErrUnsupported)
	require.ErrorContains(t, err, "Galera")
}

// Test servers lack the group replication plugin, so the test uses only its variables.
func TestAGroupWithSeveralPrimariesIsRefused(t *testing.T) {
	t.Parallel()
	group := map[string]string{"group_replication_single_primary_mode": "ON", "auto_increment_increment": "1", "auto_increment_offset": "1", "read_only": "OFF"}
	require.NoError(t, mysql.CheckTopology(group), "the only primary of a group")
	group["group_replication_single_primary_mode"] = "OFF"
	err := mysql.CheckTopology(group)
	require.ErrorIs(t, err, store.ErrUnsupported)
	require.ErrorContains(t, err, "group_replication_switch_to_single_primary_mode()")
	group["group_replication_single_primary_mode"], group["read_only"] = "ON", "ON"
	require.ErrorContains(t, mysql.CheckTopology(group), "name the primary", "another member of that group")
}

func TestALogThatIsNotInInnoDBIsRefused(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	openStore(t, db, mysql.Config{})
	_, err := db.ExecContext(t.Context(), `ALTER TABLE outbox ENGINE = MyISAM`)
	require.NoError(t, err)
	_, err = mysql.Open(t.Context(), db, mysql.Config{})
	require.ErrorIs(t, err, store.ErrUnsafeLog)
	require.ErrorContains(t, err, "ENGINE = InnoDB")
}

func TestAHandleOfAnotherZoneIsRefused(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("mysql", mysqltest.DSN(t)+"?parseTime=true&loc=Asia%2FTokyo")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = mysql.Migrate(t.Context(), db, mysql.Config{})
	require.ErrorIs(t, err, store.ErrUnsupported)
	require.ErrorContains(t, err, "loc=")
}

func TestInvalidAddressesAreRefusedWithoutQuotingThem(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"", "app:hunter2@db/app", "mysql://app:hunter2@db", "postgres://app:hunter2@db/app", "mysql://app:hunter2@db/app?tls=nothing", "mysql://app:hunter2%zz@db/app"} {
		_, err := mysql.OpenDB(dsn)
		require.Error(t, err, dsn)
		require.NotContains(t, err.Error(), "hunter2")
	}
	a, err := mysql.ParseAddress("mysql://app@db/shop")
	require.NoError(t, err)
	require.Equal(t, mysql.Address{User: "app", Host: "db:3306", Database: "shop"}, a)
}

func TestAnInterruptedMigrationContinues(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	openStore(t, db, mysql.Config{})
	for _, statement := range []string{`DROP TABLE outbox_actions, outbox_schedules, outbox_inbox`, `DELETE FROM outbox_migrations WHERE version_id > 0`} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	_, err := mysql.Open(t.Context(), db, mysql.Config{})
	require.ErrorIs(t, err, store.ErrNotMigrated)
	openStore(t, db, mysql.Config{})
}

// unprivileged opens the test's database as a user who lacks the privilege PROCESS.
func unprivileged(t *testing.T) (db *sql.DB) {
	t.Helper()
	dsn := mysqltest.DSN(t)
	owner, err := mysql.OpenDB(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = owner.Close() })
	openStore(t, owner, mysql.Config{})
	name := mysqltest.User(t, owner, "SELECT, INSERT, UPDATE, DELETE")
	config, err := driver.ParseDSN(dsn)
	require.NoError(t, err)
	config.User, config.Passwd = name, name
	db, err = mysql.OpenDB(config.FormatDSN())
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestReadingWithoutPROCESSIsRefusedWithAHint(t *testing.T) {
	t.Parallel()
	s, err := mysql.Open(t.Context(), unprivileged(t), mysql.Config{})
	require.NoError(t, err, "publishing does not need the privilege")
	_, err = s.Probe(t.Context())
	require.ErrorIs(t, err, store.ErrUnsupported)
	var advised *store.AdvisedError
	require.True(t, errors.As(err, &advised))
	require.Contains(t, advised.Hint, "GRANT PROCESS")
	require.Contains(t, advised.Hint, "without_process")
}

func TestUsersWithTheGrantsOfTheirDutiesHaveEndpoints(t *testing.T) {
	t.Parallel()
	dsn := mysqltest.DSN(t)
	owner, err := mysql.OpenDB(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = owner.Close() })
	openStore(t, owner, mysql.Config{})
	storetest.Duties(t, dialect(mysql.Config{}, nil), func(t *testing.T, duty string) *sql.DB {
		user := mysqltest.User(t, owner, "CREATE VIEW") // no duty needs this privilege
		grants, err := mysql.Grants(mysql.Config{}, user, duty)
		require.NoError(t, err)
		for _, grant := range strings.Split(strings.TrimSpace(grants), "\n") {
			exec(t, owner, grant)
		}
		config, err := driver.ParseDSN(dsn)
		require.NoError(t, err)
		config.User, config.Passwd = user, user
		db, err := mysql.OpenDB(config.FormatDSN())
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		return db
	})
}
