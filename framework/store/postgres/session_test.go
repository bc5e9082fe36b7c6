package postgres_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/capture"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/storetest"
)

// odd are settings of a role with which a plain session does something else, or slower. The last ones are
// tried one by one.
var odd = []string{
	`default_transaction_deferrable = on`, `standard_conforming_strings = off`, `datestyle = 'SQL, DMY'`, `intervalstyle = sql_standard`,
	`timezone = 'Asia/Kathmandu'`, `extra_float_digits = -15`, `bytea_output = escape`, `client_encoding = LATIN1`, `transform_null_equals = on`,
	`array_nulls = off`, `quote_all_identifiers = on`, `enable_indexscan = off`, `enable_seqscan = off`, `row_security = off`, `search_path = public, "$user"`,
	`session_replication_role = replica`, `xmloption = document`, `check_function_bodies = off`, `max_parallel_workers_per_gather = 0`, `jit_above_cost = 0`,
	`gin_fuzzy_search_limit = 1`, `backslash_quote = off`, `escape_string_warning = on`, `synchronous_commit = off`, `plpgsql.variable_conflict = error`,
	`plan_cache_mode = force_generic_plan`, `client_min_messages = error`, `from_collapse_limit = 1`,
	`default_transaction_isolation = 'serializable'`, `default_transaction_isolation = 'repeatable read'`,
}

func TestStatementsDoNotDependOnTheSettingsOfTheRole(t *testing.T) {
	t.Parallel()
	for i, setting := range odd[len(odd)-2:] {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			dsn := postgrestest.DSN(t)
			admin := openDB(t, dsn)
			role, address := newRole(t, admin, dsn)
			exec(t, admin, `GRANT ALL ON SCHEMA public TO `+role)
			for _, other := range odd[:len(odd)-2] {
				exec(t, admin, `ALTER ROLE `+role+` SET `+other)
			}
			exec(t, admin, `ALTER ROLE `+role+` SET `+setting)
			storetest.Use(t, dialect(postgres.Config{Receipts: true, PartitionRows: int64(200 * i)}, func(t testing.TB) *sql.DB { return openDB(t, address) }))
		})
	}
}

func TestAPayloadOfBytesIsKnownWhateverTheRoleQuotes(t *testing.T) {
	t.Parallel()
	db := openDB(t, with(t, postgrestest.DSN(t), "quote_all_identifiers", "on"))
	require.True(t, openStore(t, db, postgres.Config{Payload: postgres.PayloadBytes}).BinaryPayload())
}

func TestARoleWithoutASearchPathNamesTheSchema(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	admin := openDB(t, dsn)
	role, address := newRole(t, admin, dsn)
	exec(t, admin, `GRANT ALL ON SCHEMA public TO `+role, `ALTER ROLE `+role+` SET search_path = ''`)
	db := openDB(t, address)
	_, err := postgres.Migrate(t.Context(), db, postgres.Config{})
	require.ErrorContains(t, err, "name one, as in schema.outbox")
	storetest.Use(t, dialect(postgres.Config{Schema: "public", Receipts: true}, func(testing.TB) *sql.DB { return db }))
}

// Only what a session writes, not how it shows texts, may decide about a change and its key.
func TestACaptureDoesNotDependOnTheSettingsOfTheSessionThatWrites(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	exec(t, db, `CREATE TABLE readings (at timestamptz PRIMARY KEY, value float8, raw bytea, span interval)`)
	require.NoError(t, capture.Add(t.Context(), db, postgres.Config{}, capture.Capture{Table: "readings", Key: "at", Columns: []string{"at", "value", "raw", "span"}}))
	exec(t, db, `INSERT INTO readings VALUES ('2026-03-04 05:06:07+00', 1.000001, 'a', '1 day 2 hours')`)
	exec(t, db, `BEGIN; SET LOCAL datestyle = 'SQL, DMY'; SET LOCAL timezone = 'Asia/Kathmandu'; SET LOCAL intervalstyle = iso_8601;
		SET LOCAL bytea_output = escape; SET LOCAL extra_float_digits = -15;
		UPDATE readings SET value = 1.000002; UPDATE readings SET value = 1.000001; COMMIT`)
	r := readerFrom(t, s, nil)
	target := probeOf(t, s)
	page := nextPage(t, r, target, 10)
	require.Len(t, page.Envelopes, 3)
	for _, e := range page.Envelopes {
		require.Equal(t, page.Envelopes[0].Key, e.Key)
		require.Contains(t, string(e.Payload), `"span":"1 day 02:00:00"`)
	}
}
