package mysql_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
	"github.com/waybill-go/waybill/framework/store/storetest"
)

// odd are global values of MariaDB with which a plain session does something else.
var odd = []string{
	`autocommit = 0`, `completion_type = CHAIN`, `sql_select_limit = 2`, `sql_safe_updates = 1`, `max_join_size = 1`, `sql_auto_is_null = 1`,
	`tx_read_only = 1`, `tx_isolation = 'SERIALIZABLE'`, `check_constraint_checks = 0`, `unique_checks = 0`, `foreign_key_checks = 0`,
	`group_concat_max_len = 4`, `max_sort_length = 64`, `default_storage_engine = MyISAM`, `default_week_format = 3`, `div_precision_increment = 0`,
	`character_set_client = latin1`, `character_set_connection = latin1`, `character_set_results = latin1`, `time_zone = '+05:30'`,
	`low_priority_updates = 1`, `explicit_defaults_for_timestamp = 0`,
	`sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,IGNORE_SPACE,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,HIGH_NOT_PRECEDENCE,NO_UNSIGNED_SUBTRACTION,EMPTY_STRING_IS_NULL,SIMULTANEOUS_ASSIGNMENT,TIME_ROUND_FRACTIONAL,NO_AUTO_VALUE_ON_ZERO'`,
	`sql_mode = 'ORACLE'`,
}

func TestStatementsDoNotDependOnTheServersVariables(t *testing.T) {
	t.Parallel()
	mysqltest.Shared(t) // skips the test if no server is available
	server, err := mysqltest.Start(t.Context(), mysqltest.Options{Private: true, Family: mysqltest.MariaDB, Settings: map[string]string{"skip-character-set-client-handshake": "1"}})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	admin := openDB(t, server.DSN("mysql"))
	for i, variable := range odd {
		exec(t, admin, `SET GLOBAL `+variable)
		if i < len(odd)-2 {
			continue // all at once, with each of the modes
		}
		name := fmt.Sprintf("odd%d", i)
		exec(t, admin, `CREATE DATABASE `+name)
		t.Run(variable, func(t *testing.T) { useOutbox(t, openDB(t, server.DSN(name))) })
	}
}

func TestAHandleOfTheApplicationMayHaveHarmlessVariables(t *testing.T) {
	t.Parallel()
	for _, harmless := range []string{
		"time_zone='%2B05:30'&foreign_key_checks=0&sql_mode='ANSI_QUOTES,PIPES_AS_CONCAT,IGNORE_SPACE,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,ONLY_FULL_GROUP_BY'",
		"sql_mode=''&low_priority_updates=1&default_week_format=3",
	} {
		t.Run(harmless, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open("mysql", mysqltest.DSN(t)+"?"+harmless)
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			useOutbox(t, db)
		})
	}
}

func TestAHandleInWhoseSessionsStatementsMeanSomethingElseIsRefused(t *testing.T) {
	t.Parallel()
	address := mysqltest.DSN(t)
	openStore(t, openDB(t, address), mysql.Config{})
	for variable, value := range map[string]string{
		"autocommit": "0", "completion_type": "CHAIN", "sql_select_limit": "100", "sql_big_selects": "0", "sql_safe_updates": "1", "sql_auto_is_null": "1",
		"unique_checks": "0", "check_constraint_checks": "0", "tx_read_only": "1", "character_set_results": "latin1",
		"sql_mode": "'STRICT_TRANS_TABLES,EMPTY_STRING_IS_NULL'",
	} {
		t.Run(variable, func(t *testing.T) {
			db, err := sql.Open("mysql", address+"?"+variable+"="+url.QueryEscape(value))
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Close()) }()
			if _, err := db.ExecContext(t.Context(), `DO @@`+variable); err != nil {
				t.Skip(err) // this server has no such variable
			}
			_, err = mysql.Open(t.Context(), db, mysql.Config{})
			require.ErrorIs(t, err, store.ErrUnsupported)
			require.ErrorContains(t, err, variable+" = ")
			require.ErrorContains(t, err, "mysql.OpenDB")
			_, err = mysql.Migrate(t.Context(), db, mysql.Config{})
			require.ErrorContains(t, err, variable+" = ")
		})
	}
}

// useOutbox uses a new outbox through a handle.
func useOutbox(t *testing.T, db *sql.DB) {
	t.Helper()
	storetest.Use(t, dialect(mysql.Config{Receipts: true}, func(testing.TB) *sql.DB { return db }))
}
