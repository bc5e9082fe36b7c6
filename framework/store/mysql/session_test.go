package mysql_test

import (
	"database/sql"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
	"github.com/waybill-go/waybill/framework/store/storetest"
)

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

// useOutbox uses a new outbox through a handle, and publishes through others, too.
func useOutbox(t *testing.T, db *sql.DB, applications ...*sql.DB) {
	t.Helper()
	storetest.Use(t, dialect(mysql.Config{Receipts: true}, func(testing.TB) *sql.DB { return db }), applications...)
}
