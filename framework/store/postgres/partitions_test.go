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

func expirePartitions(t *testing.T, s *postgres.Store) int {
	t.Helper()
	dropped, err := s.PrunePartitions(t.Context(), store.Pruning{Age: time.Microsecond, Sinks: []string{"mail"}})
	require.NoError(t, err)
	return dropped
}

func TestOldPartitionsAreDroppedAndNewOnesCreated(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{PartitionRows: 10})
	ctx := t.Context()
	tables := func() (names []string) {
		rows, err := db.QueryContext(ctx, `SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'outbox'::regclass ORDER BY inhrelid`)
		require.NoError(t, err)
		defer func() { require.NoError(t, rows.Close()) }()
		for rows.Next() {
			var name string
			require.NoError(t, rows.Scan(&name))
			names = append(names, name)
		}
		require.NoError(t, rows.Err())
		return names
	}
	require.True(t, s.Partitioned())
	require.Equal(t, []string{"outbox_default", "outbox_from_1", "outbox_from_11", "outbox_from_21", "outbox_from_31"}, tables())
	for range 35 {
		_, err := db.ExecContext(ctx, insertOne)
		require.NoError(t, err)
	}
	require.Zero(t, expirePartitions(t, s), "nothing is settled")
	made, err := s.ExtendPartitions(ctx)
	require.NoError(t, err)
	require.Equal(t, 4, made)
	require.Equal(t, []string{"outbox_from_45", "outbox_from_55", "outbox_from_65", "outbox_from_75"}, tables()[5:],
		"away from rows that may be on their way into the default partition")
	for range 13 { // 36 to 48
		_, err := db.ExecContext(ctx, insertOne)
		require.NoError(t, err)
	}
	settleAll(t, s, "mail")
	require.Equal(t, 3, expirePartitions(t, s), "the partitions far behind the sequence")
	require.NotContains(t, tables(), "outbox_from_21")
	require.Equal(t, int64(31), offsetsOf(t, db)[0])
	require.Equal(t, 4, expireAll(t, s, "mail"), "41 to 44 are in the default partition")

	_, err = db.ExecContext(ctx, insertOne)
	require.NoError(t, err)
	settleAll(t, s, "mail")
	made, err = s.ExtendPartitions(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, made)
}

func TestAPartitionStaysForAnUnsettledRowAndAnOpenTransaction(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{PartitionRows: 5})
	ctx := t.Context()
	early, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	defer early.Rollback()
	_, err = early.ExecContext(ctx, insertOne)
	require.NoError(t, err)
	for range 18 {
		_, err := db.ExecContext(ctx, insertOne)
		require.NoError(t, err)
	}
	settleAll(t, s, "mail")
	require.Equal(t, 1, expirePartitions(t, s), "only the second partition is emptied: the first has the open transaction's row")
	require.NotContains(t, offsetsOf(t, db), int64(7))
	require.Contains(t, offsetsOf(t, db), int64(2))
	require.NoError(t, early.Commit())
	expirePartitions(t, s)
	require.Contains(t, offsetsOf(t, db), int64(1), "committed meanwhile, but not settled")
	settleAll(t, s, "mail")
	expirePartitions(t, s)
	require.Equal(t, int64(11), offsetsOf(t, db)[0])
}

// Publishers may reach a partition while it is being created.
func TestAnotherSizeAppliesToThePartitionsAfterTheExistingOnes(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	openStore(t, db, postgres.Config{PartitionRows: 10})
	for range 2 { // the second time nothing is left to do
		openStore(t, db, postgres.Config{PartitionRows: 5})
		var bound string
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
			WHERE inhparent = 'outbox'::regclass ORDER BY c.oid DESC LIMIT 1`).Scan(&bound))
		require.Equal(t, `FOR VALUES FROM ('41') TO ('46')`, bound)
	}
}

func TestAPartitionThatTheSequenceHasReachedIsNotCreated(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]string{
		"rows on their way": `SELECT setval('outbox_offset_seq', 36)`,
		"rows there":        `SELECT setval('outbox_offset_seq', 42); ` + insertOne,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			s := openStore(t, db, postgres.Config{PartitionRows: 10})
			exec(t, db, meanwhile)
			require.ErrorIs(t, s.MakePartition(t.Context(), 41, 51), postgres.ErrTooLate)
			require.NoError(t, s.MakePartition(t.Context(), 51, 61))
		})
	}
}

// While the pruner waits for the log, publishers wait too, so it tries only once.
func TestAPartitionThatCannotBeDroppedIsEmptiedOnce(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{PartitionRows: 5})
	for range 18 {
		exec(t, db, insertOne)
	}
	settleAll(t, s, "mail")
	backup := begin(t, db, `LOCK TABLE ONLY outbox IN ACCESS SHARE MODE`)
	require.Equal(t, 2, expirePartitions(t, s))
	require.Equal(t, int64(11), offsetsOf(t, db)[0])
	require.Zero(t, expirePartitions(t, s))
	require.NoError(t, backup.Commit())
	require.Equal(t, 2, expirePartitions(t, s))
}

// A pruner may be stopped or lose its connection at any moment.
func TestAStoppedPrunerReleasesTheLog(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{PartitionRows: 5})
	published := make(chan error, 1)
	err := s.PruneTx(t.Context(), func(tx *sql.Tx) error {
		var limit string
		require.NoError(t, tx.QueryRowContext(t.Context(), `SHOW idle_in_transaction_session_timeout`).Scan(&limit))
		require.Equal(t, "1min", limit, "as postgrestest sets it")
		exec(t, tx, `DROP TABLE outbox_from_1; SET LOCAL idle_in_transaction_session_timeout = '1s'`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := db.ExecContext(ctx, insertOne)
		published <- err
		return nil
	})
	require.NoError(t, <-published)
	require.Error(t, err)
}

func TestALogWithoutPartitionsIsNotConverted(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	openStore(t, db, postgres.Config{})
	_, err := postgres.Migrate(context.Background(), db, postgres.Config{PartitionRows: 10})
	require.ErrorIs(t, err, store.ErrPartitions)
	require.ErrorContains(t, err, "outbox.prefix")
}

// TestReadersMissNothingWhilePartitionsAreDropped is TestReadersMissNothingWhileThePrunerRemovesRows for
// partitions.
func TestReadersMissNothingWhilePartitionsAreDropped(t *testing.T) {
	t.Parallel()
	prunersAmongReaders(t, postgres.Config{PartitionRows: 100})
}
