package postgres_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// committed is the model: the committed rows by key, in the order of commits.
type committed struct {
	mu   sync.Mutex
	byID map[string]bool
}

func (c *committed) add(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.byID[id] = true
	}
}

// TestReadersFindEveryCommittedRowOnceAndInKeyOrder runs publishers that do everything that breaks a
// reader that relies on offsets or transaction ids: they take their ids early, sleep between inserts, roll
// back, use savepoints and subtransactions, and do not wait for the disk. One keeps a transaction open
// for seconds. The publishers of a key lock a row, as applications lock their aggregates.
func TestReadersFindEveryCommittedRowOnceAndInKeyOrder(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	findEveryRow(t, db, s)
}

// findEveryRow reads while publishers run, and compares the rows found with the rows committed.
func findEveryRow(t *testing.T, db *sql.DB, s *postgres.Store) []*follower {
	t.Helper()
	ctx := t.Context()
	s.SetFloorLag(1)
	seed := seedOf(t)

	const keys = 40
	exec(t, db, `CREATE TABLE aggregate (key text PRIMARY KEY, seq bigint NOT NULL DEFAULT 0);
		INSERT INTO aggregate (key) SELECT 'k' || i FROM generate_series(0, 39) i`)

	model := &committed{byID: make(map[string]bool)}
	publishing, stopPublishing := context.WithTimeout(ctx, publishFor())
	defer stopPublishing()
	var publishers sync.WaitGroup
	for i := range 16 {
		publishers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for publishing.Err() == nil {
				ids, err := publishOnce(ctx, db, rng, keys)
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

	// One sink reads the log as a whole, another one in three lanes.
	ended := make(chan struct{})
	go func() { publishers.Wait(); close(ended) }()
	lanes := append(store.Lanes("whole", 1), store.Lanes("cut", 3)...)
	found := make([]*follower, len(lanes))
	var readers sync.WaitGroup
	for i, lane := range lanes {
		found[i] = &follower{store: s, lane: lane, rng: rand.New(rand.NewPCG(seed, uint64(100+i)))}
		readers.Go(func() { found[i].follow(t, ended) })
	}
	readers.Wait()

	checkFound(t, model, found[:1])
	checkFound(t, model, found[1:])
	for _, f := range found {
		t.Logf("%s/%d: %d rows in %d pages, %d restarts", f.lane.Sink, f.lane.Number, len(f.ids), f.pages, f.restarts)
	}
	return found
}

// publishOnce runs one transaction of a publisher and returns the ids that it committed.
func publishOnce(ctx context.Context, db *sql.DB, rng *rand.Rand, keys int) (ids []string, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	if rng.IntN(4) == 0 {
		if _, err := tx.ExecContext(ctx, `SET LOCAL synchronous_commit = off`); err != nil {
			return nil, err
		}
	}
	if rng.IntN(3) == 0 { // takes the transaction id long before the first offset
		if _, err := tx.ExecContext(ctx, `SELECT pg_current_xact_id()`); err != nil {
			return nil, err
		}
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
	}
	chosen := rng.Perm(keys)[:1+rng.IntN(3)]
	slices.Sort(chosen) // all publishers lock in this order
	for _, k := range chosen {
		key := fmt.Sprintf("k%d", k)
		var seq int64
		if err := tx.QueryRowContext(ctx, `UPDATE aggregate SET seq = seq + 1 WHERE key = $1 RETURNING seq`, key).Scan(&seq); err != nil {
			return nil, err
		}
		if rng.IntN(4) == 0 { // a savepoint rolls back rows, and their offsets are lost
			if _, err := tx.ExecContext(ctx, `SAVEPOINT s; INSERT INTO outbox (type, key, payload) VALUES ('undone', '`+key+`', '{}'); ROLLBACK TO s`); err != nil {
				return nil, err
			}
		}
		id := fmt.Sprintf("%s/%d", key, seq)
		if _, err := tx.ExecContext(ctx, `INSERT INTO outbox (id, type, key, payload) VALUES ($1, 'counted', $2, '{}')`, id, key); err != nil {
			return nil, err
		}
		ids = append(ids, id)
		if rng.IntN(10) == 0 {
			time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
		}
	}
	if rng.IntN(5) == 0 {
		return nil, tx.Rollback()
	}
	return ids, tx.Commit()
}

// holdOpen keeps a transaction that has written to the log open, then rolls back.
func holdOpen(t *testing.T, db *sql.DB, until context.Context) {
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Errorf("long transaction: %v", err)
		return
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `INSERT INTO outbox (type, payload) VALUES ('long', '{}')`); err != nil {
		t.Errorf("long transaction: %v", err)
		return
	}
	select {
	case <-until.Done():
	case <-time.After(2 * time.Second):
	}
}

// follower reads one lane in pages of random sizes, after probes with and without rows. It restarts at
// random positions, as if it had crashed after a checkpoint, and sometimes writes a checkpoint, which gives
// the store a watermark.
type follower struct {
	store *postgres.Store
	lane  store.Lane
	rng   *rand.Rand

	ids             []string
	pages, restarts int
}

func (f *follower) follow(t *testing.T, ended <-chan struct{}) {
	ctx := t.Context()
	lease, err := lease(t, f.store, f.lane)
	if err != nil {
		t.Error(err)
		return
	}
	filter := store.Filter{Slots: f.lane.Slots, Types: notification.AllTypes}
	var at json.RawMessage
	reader, err := f.store.NewReader(at, filter)
	if err != nil {
		t.Error(err)
		return
	}
	for {
		last := false
		select {
		case <-ended:
			last = true // this round's probe sees all committed rows
		default:
		}
		look := f.store.Probe
		if f.rng.IntN(4) > 0 {
			look = reader.(store.Looker).Look
		}
		target, err := look(ctx)
		for caughtUp := false; err == nil && !caughtUp; {
			var page store.Page
			page, err = reader.Next(ctx, target, 1+f.rng.IntN(100))
			if err != nil {
				break
			}
			if page.Rebased != "" {
				t.Errorf("rebased: %s", page.Rebased)
			}
			f.pages++
			caughtUp = page.CaughtUp
			settle := len(page.Envelopes)
			crash := f.rng.IntN(10) == 0
			if crash && settle > 0 {
				settle = 1 + f.rng.IntN(settle)
			}
			for _, e := range page.Envelopes[:settle] {
				f.ids = append(f.ids, e.ID)
			}
			position := page.End
			if settle > 0 {
				position = page.After(settle - 1)
			}
			if f.rng.IntN(3) == 0 {
				err = f.store.Checkpoint(ctx, store.Checkpoint{Lease: lease, TTL: time.Minute, Position: position})
			}
			if crash && err == nil {
				f.restarts++
				caughtUp = caughtUp && settle == len(page.Envelopes)
				if at, err = position.MarshalJSON(); err == nil {
					reader, err = f.store.NewReader(at, filter)
				}
			}
		}
		if err != nil {
			t.Errorf("%s/%d: %v", f.lane.Sink, f.lane.Number, err)
			return
		}
		if last {
			return
		}
		time.Sleep(time.Duration(f.rng.IntN(10)) * time.Millisecond) // only spaces out the reads; the test waits for nothing here
	}
}

// checkFound compares the rows that the lanes of one sink found with the model.
func checkFound(t *testing.T, model *committed, lanes []*follower) {
	t.Helper()
	times := make(map[string]int)
	for _, lane := range lanes {
		lastSeq := make(map[string]int)
		for _, id := range lane.ids {
			times[id]++
			require.True(t, model.byID[id], "%s was never committed", id)
			key, number, _ := strings.Cut(id, "/")
			seq, err := strconv.Atoi(number)
			require.NoError(t, err)
			require.Greater(t, seq, lastSeq[key], "order of key %s", key)
			lastSeq[key] = seq
		}
	}
	require.NotEmpty(t, model.byID)
	for id := range model.byID {
		require.Equal(t, 1, times[id], "times that %s was found", id)
	}
}

// seedOf returns WAYBILL_TEST_SEED or a fixed seed, and prints it.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(1)
	if text := os.Getenv("WAYBILL_TEST_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("seed %d", seed)
	return seed
}

// publishFor returns how long the publishers run: WAYBILL_TEST_DURATION, or 3 s.
func publishFor() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("WAYBILL_TEST_DURATION")); err == nil {
		return d
	}
	return 3 * time.Second
}
