package postgres_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// start creates the cursor of a new sink and returns its position.
func start(t *testing.T, s *postgres.Store, sink string, at store.Start, passed int) json.RawMessage {
	t.Helper()
	created, err := s.Cut(t.Context(), sink, 1, at)
	require.NoError(t, err)
	require.Equal(t, store.Created{Lanes: 1, Start: at, Passed: passed}, created)
	lease, err := s.Acquire(t.Context(), store.Lanes(sink, 1)[0], "o", time.Minute)
	require.NoError(t, err)
	require.NotEmpty(t, lease.Position)
	return lease.Position
}

func TestRowsOfOpenTransactionsComeLaterForANewSink(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	insert := inserter(t, db)
	insert("a", "b")
	open := begin(t, db, `INSERT INTO outbox (id, type, payload, occurred_on) VALUES ('open', 't', '{}', '2001-01-01Z')`)
	early := begin(t, db, `SELECT pg_current_xact_id()`)
	begin(t, db, `INSERT INTO outbox (id, type, payload) VALUES ('never', 't', '{}')`)
	exec(t, db, `INSERT INTO outbox (id, type, payload, occurred_on) VALUES ('c', 't', '{}', '2100-01-01Z')`)

	now := start(t, s, "now", store.StartNow, 3)
	future := start(t, s, "future", store.StartAt(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)), 3)
	inside := start(t, s, "inside", store.StartAt(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)), 2)
	require.NoError(t, open.Commit())
	exec(t, early, `INSERT INTO outbox (id, type, payload) VALUES ('early', 't', '{}')`)
	require.NoError(t, early.Commit())
	insert("d")
	for name, from := range map[string]json.RawMessage{"now": now, "future": future} {
		ids, _, rebased := drain(t, s, from)
		require.Equal(t, []string{"open", "early", "d"}, ids, name)
		require.Empty(t, rebased)
	}
	ids, _, _ := drain(t, s, inside)
	require.Equal(t, []string{"c", "open", "early", "d"}, ids)
}

func TestANewSinkThatStartsNowReadsNoOldRows(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	inserter(t, db)("a", "b", "c")
	var position struct {
		At struct{ Bound int64 }
	}
	at := start(t, s, "s", store.StartNow, 3)
	require.NoError(t, json.Unmarshal(at, &position))
	require.EqualValues(t, 3, position.At.Bound, "%s", at)
}

func TestANewSinkNeverReadsRestoredRowsBeforeItsStart(t *testing.T) {
	t.Parallel()
	server := privateServer(t)
	db := openDB(t, server.DSN())
	s := openStore(t, db, postgres.Config{})
	insert := inserter(t, db)
	restored(t, db, "a", "b", "c")
	exec(t, db, `UPDATE outbox SET occurred_on = '2001-01-01Z' WHERE id <> 'c'`)
	insert("d")
	now := start(t, s, "now", store.StartNow, 4)
	late := start(t, s, "late", store.StartAt(time.Date(2002, 1, 1, 0, 0, 0, 0, time.UTC)), 2)
	ids, late, _ := drain(t, s, late)
	require.Equal(t, []string{"c", "d"}, ids)
	for range 5 {
		burn(t, db, 100)
		insert("g")
		for _, from := range []*json.RawMessage{&now, &late} {
			ids, *from, _ = drain(t, s, *from)
			require.Equal(t, []string{"g"}, ids)
		}
	}
}

func TestATimeIsFoundAfterGaps(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	insert := inserter(t, db)
	insert("a")
	for i := range 3 {
		_, err := db.ExecContext(t.Context(), `SELECT setval('outbox_offset_seq', $1)`, (i+1)*350_000)
		require.NoError(t, err)
		insert(fmt.Sprint("b", i))
	}
	exec(t, db, `UPDATE outbox SET occurred_on = '2200-01-01Z' WHERE id = 'b2'`)
	ids, _, _ := drain(t, s, start(t, s, "s", store.StartAt(time.Date(2190, 1, 1, 0, 0, 0, 0, time.UTC)), 3))
	require.Equal(t, []string{"b2"}, ids)
}

// The store writes a position only if the server did not restart between its query and the commit.
func TestANewSinkDoesNotStartWhereAnotherServerWas(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	holds, err := s.StartNow(t.Context())
	require.NoError(t, err)
	tx := begin(t, db)
	require.NoError(t, holds(t.Context(), tx))
	s.Move()
	require.ErrorIs(t, holds(t.Context(), tx), store.ErrServerChanged)
}

func TestSinksThatStartNowBetweenPublishersMissNothing(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	ctx := t.Context()
	s := openStore(t, db, postgres.Config{})
	seed := seedOf(t)
	const keys = 40
	exec(t, db, `CREATE TABLE aggregate (key text PRIMARY KEY, seq bigint NOT NULL DEFAULT 0);
		INSERT INTO aggregate (key) SELECT 'k' || i FROM generate_series(0, 39) i`)

	model := &committed{byID: make(map[string]bool)}
	publishing, stop := context.WithCancel(ctx)
	defer stop()
	var publishers sync.WaitGroup
	for i := range 8 {
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
	before := make([]map[string]bool, 12)         // rows committed before each sink started
	after := make([]map[string]bool, len(before)) // and after it had started
	wait := make([]*sql.Tx, 0, len(before))
	for i := range before {
		before[i] = model.copy()
		_, err := s.Cut(ctx, fmt.Sprint("sink", i), 1, store.StartNow)
		require.NoError(t, err)
		after[i] = visible(t, db)
		wait = append(wait, begin(t, db, fmt.Sprintf(`INSERT INTO outbox (id, type, payload) VALUES ('mark%d', 't', '{}')`, i)))
		if i >= 3 {
			require.NoError(t, wait[i-3].Commit())
		}
		time.Sleep(time.Duration(20) * time.Millisecond) // publishers continue meanwhile
	}
	for _, tx := range wait[len(wait)-3:] {
		require.NoError(t, tx.Commit())
	}
	stop()
	publishers.Wait()

	last := model.copy()
	for i := range before {
		last[fmt.Sprint("mark", i)] = true
	}
	everything, _, _ := drain(t, s, nil)
	require.Len(t, everything, len(last))
	for i := range before {
		lease, err := s.Acquire(ctx, store.Lanes(fmt.Sprint("sink", i), 1)[0], "o", time.Minute)
		require.NoError(t, err)
		ids, _, rebased := drain(t, s, lease.Position)
		require.Empty(t, rebased)
		got := make(map[string]bool)
		for _, id := range ids {
			require.False(t, got[id], "%s comes twice", id)
			require.False(t, before[i][id], "%s was committed before", id)
			got[id] = true
		}
		t.Logf("sink %d: %d rows behind %d", i, len(ids), len(before[i]))
		for id := range last {
			require.True(t, got[id] || after[i][id], "%s was committed after sink %d had started", id, i)
		}
	}
}

// visible returns the ids in the log.
func visible(t *testing.T, db *sql.DB) map[string]bool {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT id FROM outbox`)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	ids := make(map[string]bool)
	for rows.Next() {
		var id string
		require.NoError(t, rows.Scan(&id))
		ids[id] = true
	}
	require.NoError(t, rows.Err())
	return ids
}

// copy returns the ids committed so far.
func (c *committed) copy() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string]bool, len(c.byID))
	for id := range c.byID {
		all[id] = true
	}
	return all
}
