package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/postgres"
)

// As pg_dump does, a transaction reads the table that a migration alters.
func TestAMigrationThatWaitsForATableHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	_, err := postgres.Migrate(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `ALTER TABLE outbox_parked DROP COLUMN attempts; DROP TABLE outbox_keys; DELETE FROM outbox_migrations WHERE version_id >= 8`)
	require.NoError(t, err)
	dump, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = dump.ExecContext(t.Context(), `SELECT count(*) FROM outbox_parked`)
	require.NoError(t, err)
	migrated := make(chan error)
	go func() {
		_, err := postgres.Migrate(t.Context(), db, postgres.Config{})
		migrated <- err
	}()
	const waits = `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%ADD COLUMN attempts%'`
	for n := 0; n == 0; {
		require.NoError(t, db.QueryRowContext(t.Context(), waits).Scan(&n))
	}
	_, err = db.ExecContext(t.Context(), `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt)
		VALUES ('mail', 1, 1, 'a', 'order.placed', 1, '', now(), '{}', '{}', 'dead', 1)`)
	require.NoError(t, err)
	require.NoError(t, dump.Commit())
	require.NoError(t, <-migrated)
}
