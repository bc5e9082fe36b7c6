package mysql_test

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

// variable is a global value of a server.
type variable struct {
	set     string
	refused string // what Migrate says; "": an outbox works
	alone   bool   // publishers do not work in the application's sessions
}

// variables are set one at a time, and all of them at once. A server may lack some.
var variables = []variable{
	{set: `autocommit = 0`}, {set: `completion_type = CHAIN`}, {set: `completion_type = 'RELEASE'`}, {set: `sql_select_limit = 1`}, {set: `sql_safe_updates = 1`, alone: true},
	{set: `max_join_size = 1`, alone: true}, {set: `sql_auto_is_null = 1`}, {set: `foreign_key_checks = 0`}, {set: `unique_checks = 0`}, {set: `check_constraint_checks = 0`},
	{set: `group_concat_max_len = 4`}, {set: `max_sort_length = 64`}, {set: `max_sort_length = 4`}, {set: `div_precision_increment = 0`}, {set: `default_week_format = 3`},
	{set: `low_priority_updates = 1`}, {set: `sql_quote_show_create = 0`}, {set: `sql_notes = 0`}, {set: `max_error_count = 0`},

	{set: `sql_mode = ''`}, {set: `sql_mode = 'ANSI'`}, {set: `sql_mode = 'ANSI_QUOTES'`}, {set: `sql_mode = 'NO_BACKSLASH_ESCAPES'`}, {set: `sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'`},
	{set: `sql_mode = 'TRADITIONAL'`}, {set: `sql_mode = 'MSSQL'`}, {set: `sql_mode = 'EMPTY_STRING_IS_NULL'`}, {set: `sql_mode = 'SIMULTANEOUS_ASSIGNMENT'`},
	{set: `sql_mode = 'TIME_ROUND_FRACTIONAL'`}, {set: `sql_mode = 'TIME_TRUNCATE_FRACTIONAL'`}, {set: `sql_mode = 'NO_AUTO_VALUE_ON_ZERO'`}, {set: `sql_mode = 'HIGH_NOT_PRECEDENCE'`},
	{set: `sql_mode = 'ALLOW_INVALID_DATES'`}, {set: `sql_mode = 'PIPES_AS_CONCAT,IGNORE_SPACE,REAL_AS_FLOAT,ONLY_FULL_GROUP_BY,NO_UNSIGNED_SUBTRACTION'`}, {set: `sql_mode = 'ORACLE'`},

	{set: `transaction_isolation = 'REPEATABLE-READ'`}, {set: `transaction_isolation = 'READ-UNCOMMITTED'`}, {set: `transaction_isolation = 'SERIALIZABLE'`},
	{set: `tx_isolation = 'REPEATABLE-READ'`}, {set: `tx_isolation = 'READ-UNCOMMITTED'`}, {set: `tx_isolation = 'SERIALIZABLE'`},
	{set: `transaction_read_only = 1`, alone: true}, {set: `tx_read_only = 1`, alone: true}, {set: `innodb_snapshot_isolation = 1`},

	{set: `time_zone = '-12:00'`}, {set: `time_zone = '+13:00'`}, {set: `explicit_defaults_for_timestamp = 1`}, {set: `explicit_defaults_for_timestamp = 0`},
	{set: `character_set_server = utf8mb3`}, {set: `character_set_server = utf16`}, {set: `character_set_server = latin1`}, {set: `collation_server = utf8mb4_bin`},
	{set: `character_set_client = latin1`}, {set: `character_set_connection = utf16`}, {set: `character_set_results = latin1`}, {set: `default_collation_for_utf8mb4 = utf8mb4_general_ci`},

	{set: `auto_increment_increment = 2`, refused: "auto_increment_increment is 2"}, {set: `auto_increment_offset = 2`, refused: "auto_increment_offset is 2"},
	{set: `read_only = 1`, refused: "read_only is on"},

	{set: `max_allowed_packet = 65536`}, {set: `net_buffer_length = 1024`}, {set: `net_read_timeout = 1`}, {set: `net_write_timeout = 1`}, {set: `wait_timeout = 60`}, {set: `innodb_lock_wait_timeout = 1`},
	{set: `lock_wait_timeout = 1`}, {set: `max_statement_time = 10`}, {set: `max_execution_time = 10000`}, {set: `idle_transaction_timeout = 60`}, {set: `idle_write_transaction_timeout = 60`},
	{set: `max_prepared_stmt_count = 10`}, {set: `max_sp_recursion_depth = 0`}, {set: `max_recursive_iterations = 1`}, {set: `cte_max_recursion_depth = 1`},

	{set: `sql_require_primary_key = 1`}, {set: `sql_generate_invisible_primary_key = 1`}, {set: `default_storage_engine = MyISAM`}, {set: `default_tmp_storage_engine = MyISAM`},
	{set: `enforce_storage_engine = Aria`, refused: "enforce_storage_engine"}, {set: `innodb_strict_mode = 0`}, {set: `innodb_default_row_format = redundant`}, {set: `innodb_file_per_table = 0`},
	{set: `innodb_deadlock_detect = 0`}, {set: `innodb_table_locks = 0`}, {set: `innodb_stats_persistent = 0`}, {set: `sql_if_exists = 1`}, {set: `standard_compliant_cte = 0`}, {set: `old_mode = ''`},
	{set: `old_mode = 'NO_DUP_KEY_WARNINGS_WITH_IGNORE,NO_PROGRESS_INFO,ZERO_DATE_TIME_CAST'`}, {set: `alter_algorithm = COPY`}, {set: `system_versioning_alter_history = KEEP`},

	{set: `sort_buffer_size = 262144`}, {set: `join_buffer_size = 128`}, {set: `tmp_table_size = 1024`}, {set: `max_heap_table_size = 16384`}, {set: `big_tables = 1`}, {set: `sql_buffer_result = 1`},
	{set: `range_alloc_block_size = 4096`}, {set: `range_optimizer_max_mem_size = 1`}, {set: `eq_range_index_dive_limit = 1`}, {set: `max_seeks_for_key = 1`}, {set: `optimizer_search_depth = 1`},
	{set: `optimizer_prune_level = 0`}, {set: `optimizer_use_condition_selectivity = 1`}, {set: `optimizer_switch = 'derived_merge=off,materialization=off,semijoin=off,index_merge=off,mrr=on'`},
	{set: `internal_tmp_mem_storage_engine = MEMORY`}, {set: `information_schema_stats_expiry = 31536000`}, {set: `session_track_system_variables = '*'`}, {set: `session_track_state_change = 1`},
	{set: `session_track_transaction_info = CHARACTERISTICS`}, {set: `xa_detach_on_prepare = 0`}, {set: `concurrent_insert = NEVER`},
	{set: `init_connect = 'SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY'`, alone: true}, {set: `init_connect = 'SET autocommit=0, sql_select_limit=1, sql_auto_is_null=1, sql_mode=ANSI'`},
}

// oddServer is a server with a user who is no administrator, since init_connect has no effect for administrators.
type oddServer struct {
	*mysqltest.Server
	admin     *sql.DB
	databases int
}

func newOddServer(t *testing.T, settings map[string]string) *oddServer {
	t.Helper()
	mysqltest.Shared(t) // skips the test if no server is available
	s, err := mysqltest.Start(t.Context(), mysqltest.Options{Private: true, Settings: settings})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	o := &oddServer{Server: s, admin: openDB(t, s.DSN("mysql"))}
	exec(t, o.admin, `CREATE USER plain@'%'`)
	exec(t, o.admin, `GRANT PROCESS ON *.* TO plain@'%'`)
	return o
}

// newDatabase returns the address of a new database, with the server's character set.
func (o *oddServer) newDatabase(t *testing.T) string {
	t.Helper()
	o.databases++
	name := fmt.Sprintf("odd%d", o.databases)
	exec(t, o.admin, `CREATE DATABASE `+name)
	exec(t, o.admin, `GRANT ALL ON `+name+`.* TO plain@'%'`)
	return strings.Replace(o.DSN(name), "root@", "plain@", 1)
}

// set sets a variable and returns what undoes that; nil if the server has no such value.
func (o *oddServer) set(t *testing.T, v variable) (undo func()) {
	t.Helper()
	name, _, _ := strings.Cut(v.set, " ")
	var old string
	if err := o.admin.QueryRowContext(t.Context(), `SELECT @@GLOBAL.`+name).Scan(&old); err != nil {
		return nil
	}
	if _, err := o.admin.ExecContext(t.Context(), `SET GLOBAL `+v.set); err != nil {
		require.Contains(t, v.set, "sql_mode", err) // the families have different modes
		return nil
	}
	return func() { exec(t, o.admin, `SET GLOBAL `+name+` = `+literal(old)) }
}

func TestEachGlobalVariableIsHarmlessOrRefused(t *testing.T) {
	t.Parallel()
	server := newOddServer(t, nil)
	for _, v := range variables {
		undo := server.set(t, v)
		if undo == nil {
			continue
		}
		t.Run(v.set, func(t *testing.T) {
			address := server.newDatabase(t)
			db := openDB(t, address)
			if v.refused != "" {
				_, err := mysql.Migrate(t.Context(), db, mysql.Config{})
				require.ErrorContains(t, err, v.refused)
				return
			}
			application, err := sql.Open("mysql", address)
			require.NoError(t, err)
			defer func() { require.NoError(t, application.Close()) }()
			if v.alone {
				useOutbox(t, db)
			} else {
				useOutbox(t, db, application)
			}
		})
		undo()
	}
}

func TestAllGlobalVariablesTogetherAreHarmless(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]map[string]string{
		"without a binary log": {"skip-character-set-client-handshake": "1", "lower_case_table_names": "1", "innodb_autoinc_lock_mode": "0", "innodb_rollback_on_timeout": "1"},
		"with a binary log":    {"log-bin": "", "server-id": "7", "binlog_format": "MIXED", "innodb_autoinc_lock_mode": "1", "loose-query_cache_type": "1", "loose-query_cache_size": "1M"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newOddServer(t, settings)
			for _, v := range variables {
				if v.refused == "" {
					server.set(t, v)
				}
			}
			useOutbox(t, openDB(t, server.newDatabase(t)))
		})
	}
}

// literal writes a value of a variable as SQL.
func literal(value string) string {
	if _, err := strconv.ParseFloat(value, 64); err == nil {
		return value
	}
	return "'" + value + "'"
}
