package postgres_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// begin runs statements in a transaction that stays open.
func begin(t *testing.T, db *sql.DB, statements ...string) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	for _, statement := range statements {
		exec(t, tx, statement)
	}
	return tx
}

// awaitWaiting waits until a number of sessions wait for locks.
func awaitWaiting(t *testing.T, db *sql.DB, sessions int) {
	t.Helper()
	require.Eventually(t, func() bool {
		var waiting int
		err := db.QueryRowContext(t.Context(),
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		return err == nil && waiting >= sessions
	}, 30*time.Second, 10*time.Millisecond)
}

func wanted(t *testing.T, s *postgres.Store) (lanes, wanted int) {
	t.Helper()
	roster, err := s.Membership(t.Context())
	require.NoError(t, err)
	for i, l := range roster.Lanes {
		require.Equal(t, i, l.Lane.Number)
		require.Equal(t, roster.Lanes[0].Wanted, l.Wanted)
		require.Equal(t, len(roster.Lanes), l.Lane.Of)
	}
	return len(roster.Lanes), roster.Lanes[0].Wanted
}

// The last request wins, even if it waited for another one that creates the cursors.
func TestAChangeOfLanesIsNotLostToASimultaneousOne(t *testing.T) {
	t.Parallel()
	for name, first := range map[string][]string{
		"at first": nil,
		"anew":     {`INSERT INTO outbox_cursors (sink, lane, lanes, wanted) SELECT 'mail', n, 2, 3 FROM generate_series(0, 1) AS n`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			s := openStore(t, db, postgres.Config{})
			if first != nil {
				require.NoError(t, begin(t, db, first...).Commit())
			}
			other := begin(t, db, `DELETE FROM outbox_cursors`,
				`INSERT INTO outbox_cursors (sink, lane, lanes) SELECT 'mail', n, 3 FROM generate_series(0, 2) AS n`)
			cut := make(chan error)
			go func() {
				_, err := s.Cut(t.Context(), "mail", 4, store.StartNow)
				cut <- err
			}()
			awaitWaiting(t, db, 1)
			require.NoError(t, other.Commit())
			require.NoError(t, <-cut)
			lanes, wanted := wanted(t, s)
			require.Equal(t, 3, lanes)
			require.Equal(t, 4, wanted)
		})
	}
}

func TestCreatingCursorsDoesNotWaitForOtherSinks(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	_, err := s.Cut(t.Context(), "mail", 1, store.StartOldest)
	require.NoError(t, err)
	begin(t, db, `UPDATE outbox_cursors SET updated_at = now() WHERE sink = 'mail'`) // a long checkpoint
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = s.Cut(ctx, "events", 3, store.StartNow)
	require.NoError(t, err)
	_, err = s.Acquire(ctx, store.Lanes("events", 3)[2], "o", time.Minute)
	require.NoError(t, err)
}
