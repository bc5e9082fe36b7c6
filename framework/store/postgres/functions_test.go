package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

func TestOtherLanguagesPublishAndConsumeWithFunctions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]postgres.Config{
		"json":       {},
		"bytea":      {Payload: postgres.PayloadBytes},
		"in schemas": {Prefix: "billing.outbox"},
		"partitions": {PartitionRows: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openDB(t, postgrestest.DSN(t))
			_, err := postgres.Migrate(t.Context(), db, c)
			require.NoError(t, err)
			prefix := "outbox"
			if c.Prefix != "" {
				prefix = c.Prefix
			}

			var id, given string
			require.NoError(t, db.QueryRow(`SELECT `+prefix+`_publish('order.placed', 'o-17', '{"order": 17}')`).Scan(&id))
			due := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
			require.NoError(t, db.QueryRow(`SELECT `+prefix+`_publish(type => 'order.paid', key => NULL, payload => '{}', metadata => '{"tenant": "a"}', deliver_at => $1,
				id => 'n-1', version => 2)`, due).Scan(&given))
			require.Equal(t, "n-1", given)
			require.NotEmpty(t, id)
			var count int
			require.NoError(t, db.QueryRow(`SELECT count(*) FROM `+prefix+` WHERE id = $1 AND type = 'order.placed' AND key = 'o-17' AND version = 1
				AND metadata = '{}' AND deliver_at IS NULL`, id).Scan(&count))
			require.Equal(t, 1, count)
			require.NoError(t, db.QueryRow(`SELECT count(*) FROM `+prefix+` WHERE id = 'n-1' AND type = 'order.paid' AND key = '' AND version = 2
				AND metadata = '{"tenant": "a"}' AND deliver_at = $1`, due).Scan(&count))
			require.Equal(t, 1, count)
			for _, want := range []int{1, 0} {
				require.NoError(t, db.QueryRow(`SELECT `+prefix+`_cancel('n-1')`).Scan(&count))
				require.Equal(t, want, count)
			}

			for _, want := range []bool{true, false} {
				var first bool
				require.NoError(t, db.QueryRow(`SELECT `+prefix+`_first('invoices', 'n-1')`).Scan(&first))
				require.Equal(t, want, first)
			}
			tx, err := db.Begin()
			require.NoError(t, err)
			var first bool
			require.NoError(t, tx.QueryRow(`SELECT `+prefix+`_first('invoices', 'n-2')`).Scan(&first))
			require.True(t, first)
			require.NoError(t, tx.Rollback())
			require.NoError(t, db.QueryRow(`SELECT `+prefix+`_first('invoices', 'n-2')`).Scan(&first))
			require.True(t, first, "what was rolled back was not handled")
		})
	}
}

func TestFunctionsUseTheTablesOfTheirSchema(t *testing.T) {
	t.Parallel()
	db := openDB(t, postgrestest.DSN(t))
	printed, err := postgres.MigrationSQL(postgres.Config{})
	require.NoError(t, err)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	exec := func(statement string) {
		t.Helper()
		exec(t, conn, statement)
	}
	exec(printed)
	exec(`CREATE SCHEMA tenant; SET search_path = tenant`)
	exec(printed)
	exec(`SET search_path = public`)
	exec(`SELECT tenant.outbox_publish('order.placed', 'k', '{}'); SELECT tenant.outbox_first('invoices', 'n-1');
		SELECT tenant.outbox_publish('order.placed', 'k', '{}', deliver_at => now() + interval '1 day', id => 'later'); SELECT tenant.outbox_cancel('later')`)
	for table, want := range map[string]int{"public.outbox": 0, "public.outbox_inbox": 0, "tenant.outbox": 2, "tenant.outbox_inbox": 1,
		"public.outbox_cancelled": 0, "tenant.outbox_cancelled": 1} {
		var count int
		require.NoError(t, conn.QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&count))
		require.Equal(t, want, count, table)
	}
	for _, refused := range []string{`SELECT outbox_first('', 'x')`, `SELECT outbox_first('c', '')`, `SELECT outbox_first('c', repeat('x', 1001))`} {
		_, err := conn.ExecContext(t.Context(), refused)
		require.ErrorContains(t, err, "violates check constraint", refused)
	}
}

func TestTheCancelFunctionFailsIfRowsAreHidden(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"outbox", "outbox_parked"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			dsn := postgrestest.DSN(t)
			db := openDB(t, dsn)
			_, err := postgres.Migrate(t.Context(), db, postgres.Config{})
			require.NoError(t, err)
			role, address := newRole(t, db, dsn)
			grants, err := postgres.Grants(postgres.Config{}, role, postgres.Publisher)
			require.NoError(t, err)
			exec(t, db, grants, `INSERT INTO outbox (id, type, payload, deliver_at) VALUES ('later', 't', '{}', now() + interval '1 hour')`)
			exec(t, db, `ALTER TABLE `+table+` ENABLE ROW LEVEL SECURITY`)
			as := openDB(t, address)
			_, err = as.ExecContext(t.Context(), `SELECT outbox_cancel('later')`)
			require.ErrorContains(t, err, "row-level security hides what is scheduled")
			exec(t, db, `ALTER TABLE `+table+` DISABLE ROW LEVEL SECURITY`)
			var cancelled int
			require.NoError(t, as.QueryRowContext(t.Context(), `SELECT outbox_cancel('later')`).Scan(&cancelled))
			require.Equal(t, 1, cancelled)
			require.NoError(t, as.Close())
		})
	}
}
