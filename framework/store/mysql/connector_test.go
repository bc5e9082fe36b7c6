package mysql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

// A client that vanishes looks to the server like one that sends nothing.
func TestACheckpointWhoseClientVanishedReleasesItsLane(t *testing.T) {
	t.Parallel()
	db := openDB(t, mysqltest.URL(t))
	s := openStore(t, db, mysql.Config{})
	_, err := s.Cut(t.Context(), "mail", 1, store.StartOldest)
	require.NoError(t, err)
	lease, err := s.Acquire(t.Context(), store.NewLane("mail", 0, 1), "w", time.Hour)
	require.NoError(t, err)
	err = s.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Second, Number: 1, InTx: func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `SET SESSION wait_timeout = 1`)
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), `UPDATE outbox_cursors SET updated_at = updated_at + INTERVAL 1 SECOND`)
		require.NoError(t, err)
		return nil
	}})
	require.Error(t, err)
}

func TestTheServerEndsSessionsThatSendNothing(t *testing.T) {
	t.Parallel()
	address := mysqltest.URL(t)
	for parameters, seconds := range map[string]int{"": 300, "?wait_timeout=900": 900, "?wait_timeout=7": 7} {
		var got int
		require.NoError(t, openDB(t, address+parameters).QueryRowContext(t.Context(), `SELECT @@SESSION.wait_timeout`).Scan(&got))
		require.Equal(t, seconds, got, parameters)
	}
}
