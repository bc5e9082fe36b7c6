package postgres_test

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// settleAll reads a sink's only lane to the end and moves its cursor there.
func settleAll(t *testing.T, s *postgres.Store, sink string) {
	t.Helper()
	ctx := t.Context()
	lease, err := lease(t, s, store.Lanes(sink, 1)[0])
	require.NoError(t, err)
	reader := readerFrom(t, s, lease.Position)
	target := probeOf(t, s)
	for {
		page := nextPage(t, reader, target, 1000)
		if page.CaughtUp {
			require.NoError(t, s.Checkpoint(ctx, store.Checkpoint{Lease: lease, TTL: time.Minute, Position: page.End}))
			require.NoError(t, s.Release(ctx, lease))
			return
		}
	}
}

func expireAll(t *testing.T, s *postgres.Store, sink string) int {
	t.Helper()
	expired, err := s.Prune(t.Context(), store.Pruning{Age: time.Microsecond, Limit: 1000, Sinks: []string{sink}})
	require.NoError(t, err)
	return expired.Removed
}

func offsetsOf(t *testing.T, db *sql.DB) (offsets []int64) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT "offset" FROM outbox ORDER BY 1`)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	for rows.Next() {
		var offset int64
		require.NoError(t, rows.Scan(&offset))
		offsets = append(offsets, offset)
	}
	require.NoError(t, rows.Err())
	return offsets
}

const insertOne = `INSERT INTO outbox (type, payload) VALUES ('t', '{}')`

func TestAnOpenTransactionKeepsOnlyItsOwnRows(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	exec := func(q interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
	}) {
		t.Helper()
		exec(t, q, insertOne)
	}
	exec(db) // 1
	long := begin(t, db)
	exec(long) // 2
	exec(db)   // 3
	settleAll(t, s, "mail")
	exec(long) // 4
	exec(db)   // 5
	require.Equal(t, 2, expireAll(t, s, "mail"))
	require.Equal(t, []int64{5}, offsetsOf(t, db))

	require.NoError(t, long.Commit())
	require.Zero(t, expireAll(t, s, "mail"), "committed meanwhile, but not settled")
	require.Equal(t, []int64{2, 4, 5}, offsetsOf(t, db))
	settleAll(t, s, "mail")
	require.Equal(t, 3, expireAll(t, s, "mail"))
}

func TestRestoredRowsAreRemovedAfterTheyAreSettled(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	exec(t, db, insertOne+`; `+insertOne+`; UPDATE outbox SET transaction_id = '1000000000000'`)
	lease, err := lease(t, s, store.Lanes("mail", 1)[0])
	require.NoError(t, err)
	require.NoError(t, s.Release(t.Context(), lease))
	require.Zero(t, expireAll(t, s, "mail"))
	settleAll(t, s, "mail")
	require.Equal(t, 2, expireAll(t, s, "mail"))
}

func TestNothingIsRemovedIfTheCursorBelongsToAnotherCluster(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	exec(t, db, insertOne)
	settleAll(t, s, "mail")
	const change = `UPDATE outbox_cursors SET position = jsonb_set(position, $1, $2) WHERE sink = 'mail'`
	for _, c := range []struct{ path, value, contains string }{
		{"{history,system}", `"17"`, "restored into another cluster"},
		{"{history,sequence}", `17`, "the log was truncated"},
		{"{at,last}", `1000`, "the log was truncated"},
		{"{at,snapshot}", `"900000000:900000000:"`, "restored into another cluster"},
	} {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		var before string
		require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT position::text FROM outbox_cursors`).Scan(&before))
		_, err = tx.ExecContext(t.Context(), change, c.path, c.value)
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		require.Zero(t, expireAll(t, s, "mail"), c.path)
		holders, err := s.Holders(t.Context(), nil)
		require.NoError(t, err)
		require.Contains(t, holders[0].Reason, c.contains)
		_, err = db.ExecContext(t.Context(), `UPDATE outbox_cursors SET position = $1::jsonb`, before)
		require.NoError(t, err)
	}
	require.Equal(t, 1, expireAll(t, s, "mail"))
}

func TestThePrunerDoesNotWaitForLocksOfTheLog(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	exec(t, db, insertOne)
	settleAll(t, s, "mail")
	for _, lock := range []string{`LOCK TABLE outbox`, `SELECT FROM outbox FOR UPDATE`} {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		exec(t, tx, lock)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		expired, err := s.Prune(ctx, store.Pruning{Age: time.Microsecond, Limit: 1000, Sinks: []string{"mail"}})
		cancel()
		require.NoError(t, err)
		require.Zero(t, expired.Removed)
		require.NoError(t, tx.Rollback())
	}
	require.Equal(t, 1, expireAll(t, s, "mail"))
}

// TestReadersMissNothingWhileThePrunerRemovesRows is the concurrency test of readers with a tiny
// retention: two pruners remove everything that the cursors allow, as fast as possible.
func TestReadersMissNothingWhileThePrunerRemovesRows(t *testing.T) {
	t.Parallel()
	prunersAmongReaders(t, postgres.Config{})
}

func prunersAmongReaders(t *testing.T, c postgres.Config) {
	db := newDB(t)
	ctx := t.Context()
	s := openStore(t, db, c)
	seed := seedOf(t)
	exec(t, db, `CREATE TABLE aggregate (key text PRIMARY KEY, seq bigint NOT NULL DEFAULT 0);
		INSERT INTO aggregate (key) SELECT 'k' || i FROM generate_series(0, 39) i`)

	model := &committed{byID: make(map[string]bool)}
	publishing, stopPublishing := context.WithTimeout(ctx, publishFor())
	defer stopPublishing()
	var publishers sync.WaitGroup
	for i := range 8 {
		publishers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for publishing.Err() == nil {
				ids, err := publishOnce(ctx, db, rng, 40)
				if err != nil {
					t.Errorf("publisher %d: %v", i, err)
					return
				}
				model.add(ids)
			}
		})
	}
	publishers.Go(func() {
		for publishing.Err() == nil {
			holdOpen(t, db, publishing)
		}
	})
	ended := make(chan struct{})
	go func() { publishers.Wait(); close(ended) }()

	lanes := append(store.Lanes("whole", 1), store.Lanes("cut", 3)...)
	found := make([]*follower, len(lanes))
	var readers sync.WaitGroup
	for i, lane := range lanes {
		found[i] = &follower{store: s, lane: lane, rng: rand.New(rand.NewPCG(seed, uint64(100+i)))}
		readers.Go(func() { found[i].follow(t, ended) })
	}
	removing, stopRemoving := context.WithCancel(ctx)
	defer stopRemoving()
	var pruners sync.WaitGroup
	removed := make([]int, 2)
	for i := range removed {
		pruners.Go(func() {
			for removing.Err() == nil {
				partitions := store.Pruning{Age: time.Microsecond, Sinks: []string{"whole", "cut"}}
				if _, err := s.ExtendPartitions(ctx); err != nil {
					t.Errorf("pruner: %v", err)
				}
				dropped, err := s.PrunePartitions(ctx, partitions)
				if err != nil {
					t.Errorf("pruner: %v", err)
				}
				removed[i] += dropped * int(c.PartitionRows)
				e, err := s.Prune(ctx, store.Pruning{Age: time.Microsecond, Limit: 500, Sinks: []string{"whole", "cut"}})
				if err != nil {
					t.Errorf("pruner: %v", err)
					return
				}
				removed[i] += e.Removed
			}
		})
	}
	readers.Wait()
	stopRemoving()
	pruners.Wait()

	checkFound(t, model, found[:1])
	checkFound(t, model, found[1:])
	t.Logf("%d rows committed, %d removed by one pruner and %d by the other, %d left",
		len(model.byID), removed[0], removed[1], len(offsetsOf(t, db)))
	require.Positive(t, removed[0]+removed[1], "the pruners removed rows")
}
