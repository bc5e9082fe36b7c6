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
	address := mysqltest.URL(t)
	db := openDB(t, address)
	others := openStore(t, db, mysql.Config{})
	_, err := others.Cut(t.Context(), "mail", 1, store.StartOldest)
	require.NoError(t, err)
	lease, err := others.Acquire(t.Context(), store.NewLane("mail", 0, 1), "w", time.Hour)
	require.NoError(t, err)
	s, err := mysql.Open(t.Context(), openDB(t, address+"?wait_timeout=1"), mysql.Config{})
	require.NoError(t, err)
	next := make(chan error, 1)
	for start := time.Now(); len(next) == 0; { // on a machine that stalls, the session may end before
		require.Less(t, time.Since(start), time.Minute, "%v", err)
		err = s.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Second, Number: 1, InTx: func(context.Context, *sql.Tx) error {
			_, err := db.ExecContext(t.Context(), `UPDATE outbox_cursors SET updated_at = updated_at + INTERVAL 1 SECOND`)
			next <- err
			return nil
		}})
	}
	require.NoError(t, <-next)
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
