package mysql_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/mysql"
)

// As mysqldump does, a transaction reads the table that a migration alters.
func TestAMigrationThatWaitsForATableHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	_, err := mysql.Migrate(t.Context(), db, mysql.Config{})
	require.NoError(t, err)
	for _, statement := range []string{`ALTER TABLE outbox_parked DROP COLUMN attempts`, `DROP TABLE outbox_keys`, `DELETE FROM outbox_migrations WHERE version_id >= 7`} {
		_, err = db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	dump, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	var n int
	require.NoError(t, dump.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM outbox_parked`).Scan(&n))
	migrated := make(chan error)
	go func() {
		_, err := mysql.Migrate(t.Context(), db, mysql.Config{})
		migrated <- err
	}()
	for n == 0 {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND STATE LIKE 'Waiting for table metadata lock%'`).Scan(&n))
	}
	_, err = db.ExecContext(t.Context(), `INSERT INTO outbox_parked (sink, `+"`offset`"+`, slot, id, type, version, `+"`key`"+`, occurred_on, metadata, payload, state, attempt, first_parked_at, updated_at)
		VALUES ('mail', 1, 1, 'a', 'order.placed', 1, '', '2030-01-01', '{}', '{}', 'dead', 1, '2030-01-01', '2030-01-01')`)
	require.NoError(t, err)
	require.NoError(t, dump.Commit())
	require.NoError(t, <-migrated)
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM outbox_parked WHERE attempts IS NULL`).Scan(&n))
	require.Equal(t, 1, n)
}
