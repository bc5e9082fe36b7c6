package postgres

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// plan has the fields of EXPLAIN (ANALYZE, FORMAT JSON) that tests use.
type plan struct {
	NodeType    string  `json:"Node Type"`
	Rows        float64 `json:"Actual Rows"`
	RowsRemoved float64 `json:"Rows Removed by Filter"`
	Plans       []plan  `json:"Plans"`
}

// scanned returns how many rows the plan's scans of the table have read.
func (p plan) scanned() float64 {
	total := 0.0
	if p.NodeType == "Index Scan" || p.NodeType == "Bitmap Heap Scan" || p.NodeType == "Seq Scan" {
		total = p.Rows + p.RowsRemoved
	}
	for _, child := range p.Plans {
		total += child.scanned()
	}
	return total
}

func TestAPageReadsHardlyMoreRowsThanItReturns(t *testing.T) {
	t.Parallel()
	pagesTouchFewRows(t, Config{}, `ALTER TABLE outbox SET (autovacuum_enabled = off)`)
}

func TestAPageOfAPartitionedLogReadsHardlyMoreRowsThanItReturns(t *testing.T) {
	t.Parallel()
	pagesTouchFewRows(t, Config{PartitionRows: 20_000}, `ALTER TABLE outbox_from_1 SET (autovacuum_enabled = off)`)
}

func pagesTouchFewRows(t *testing.T, c Config, prepare string) {
	t.Helper()
	db, err := OpenDB(postgrestest.DSN(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	ctx := t.Context()
	_, err = Migrate(ctx, db, c)
	require.NoError(t, err)
	s, err := Open(ctx, db, c)
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, prepare)
	require.NoError(t, err)

	long, err := db.BeginTx(ctx, nil) // its row comes late
	require.NoError(t, err)
	defer long.Rollback()
	const insert = `INSERT INTO outbox (type, key, payload) SELECT 'type' || i % 10, 'k' || i % 100, '{}' FROM generate_series(1, $1::int) i`
	_, err = long.ExecContext(ctx, insert, 1)
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, insert, 100_000)
	require.NoError(t, err)
	before, err := s.Probe(ctx)
	require.NoError(t, err)
	require.NoError(t, long.Commit())

	const limit = 1000
	all := store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes}
	sparse := all
	sparse.Types = notification.TypeFilter{Names: []string{"type3"}}
	for _, statistics := range []string{"", "ANALYZE outbox"} {
		if statistics != "" {
			_, err = db.ExecContext(ctx, statistics)
			require.NoError(t, err)
		}
		target, err := s.Probe(ctx)
		require.NoError(t, err)
		for name, c := range map[string]struct {
			from   base
			filter store.Filter
		}{
			"everything":           {origin, all},
			"one type in ten":      {origin, sparse},
			"with late rows":       {origin.next(before.(*probe)), all},
			"a lane of late rows":  {origin.next(before.(*probe)), store.Filter{Slots: store.SlotRange{Last: 255}, Types: notification.AllTypes}},
			"a lane of everything": {origin, store.Filter{Slots: store.SlotRange{Last: 255}, Types: notification.AllTypes}},
		} {
			t.Run(name+" "+statistics, func(t *testing.T) {
				r := &reader{store: s, filter: c.filter, pos: position{base: &c.from}}
				page, err := r.Next(ctx, target, limit)
				require.NoError(t, err)
				for range 20 { // the window adapts to the density of the rows
					if r.pos.delta == nil {
						break
					}
					touched, window := explain(t, r, limit)
					require.LessOrEqual(t, touched.scanned(), 1.3*float64(window), "rows touched for one page")
					page, err = r.Next(ctx, target, limit)
					require.NoError(t, err)
				}
				_ = page
			})
		}
		t.Run("a part of the pending rows "+statistics, func(t *testing.T) {
			for _, from := range []base{origin, origin.next(before.(*probe))} {
				r := &reader{store: s, filter: sparse, pos: position{base: &from}}
				require.True(t, r.begin(target.(*probe)))
				span := newWaitingSpan(r, 1)
				span.join(0, 0, 0)
				for _, offsets := range []int64{500, 5000} {
					require.LessOrEqual(t, r.explain(t, span.statement(60_000, 60_000+offsets, store.PendingLimit)).scanned(), 1.1*float64(offsets), "rows touched for a count")
				}
			}
		})
		t.Run("a look of a reader that has caught up "+statistics, func(t *testing.T) {
			b := origin.next(target.(*probe))
			r := &reader{store: s, filter: all, pos: position{base: &b}}
			q, _ := r.look()
			require.Nil(t, q, "new rows can be anywhere")
			b.Bound = b.Last - nearOffsets/2
			for _, other := range b.Snapshot.running { // transactions of other tests
				b.Floors[other] = b.Bound
			}
			q, _ = r.look()
			require.NotNil(t, q)
			require.LessOrEqual(t, r.explain(t, q).scanned(), float64(nearOffsets), "rows touched for one look")
		})
	}
}

// explain runs the reader's next query under EXPLAIN, and returns how many offsets it covers.
func explain(t *testing.T, r *reader, limit int) (plan, int64) {
	t.Helper()
	pace := r.pace
	_, window := pace.Next(limit)
	window = max(window, int64(limit))
	return r.explain(t, r.statement(r.pos.delta, r.pos.offset+window, limit)), window
}

func (r *reader) explain(t *testing.T, q *statement) plan {
	t.Helper()
	var text []byte
	require.NoError(t, r.store.db.QueryRowContext(t.Context(), `EXPLAIN (ANALYZE, FORMAT JSON) `+q.String(), q.args...).Scan(&text))
	var plans []struct{ Plan plan }
	require.NoError(t, json.Unmarshal(text, &plans))
	require.Len(t, plans, 1)
	return plans[0].Plan
}

// The engine's frequent queries do not read deliveries that are scheduled for later.
func TestScheduledDeliveriesCostNothingUntilTheyAreDue(t *testing.T) {
	t.Parallel()
	db, err := OpenDB(postgrestest.DSN(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	ctx := t.Context()
	_, err = Migrate(ctx, db, Config{})
	require.NoError(t, err)
	s, err := Open(ctx, db, Config{})
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, `
		INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, due_at)
		SELECT 's', i, i % 1024, i, 't', 1, 'k' || i % 1000, now(), '{}', '{}', state, 0, CASE WHEN state = 'blocked' THEN NULL ELSE now() + (i - 100) * interval '1 second' END
		FROM generate_series(1, 100000) i, LATERAL (SELECT CASE WHEN i % 10000 = 1 THEN 'retrying' WHEN i % 10000 = 2 THEN 'blocked' ELSE 'scheduled' END AS state) x`)
	require.NoError(t, err)
	lane := store.Lanes("s", 1)[0]
	for _, statistics := range []string{"", "ANALYZE outbox_parked"} {
		_, err = db.ExecContext(ctx, statistics)
		require.NoError(t, err)
		for name, query := range map[string]tables.Expr{
			"due":       s.run.DueQuery(store.DueQuery{Lane: lane, Now: time.Now(), Limit: 256, Halt: true}),
			"next due":  s.run.NextDueQuery("s", time.Now()),
			"followers": s.run.FollowersQuery("s", manyKeys(100), true, 20),
			"held keys": s.run.HeldKeysQuery(lane, true, "", 10_000),
		} {
			blocks, text := blocksOf(t, s, query)
			require.Less(t, blocks, 1000, "%s %s: %s", name, statistics, text) // out of 3,000 or more
		}
	}
}

// Pages and due deliveries read only the cancellations of their own rows, and cancelling reads only the
// rows that it cancels.
func TestCancellationsCostOnlyTheRowsWithATime(t *testing.T) {
	t.Parallel()
	db, err := OpenDB(postgrestest.DSN(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	ctx := t.Context()
	_, err = Migrate(ctx, db, Config{})
	require.NoError(t, err)
	s, err := Open(ctx, db, Config{})
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, `
		INSERT INTO outbox (id, type, key, deliver_at, payload)
			SELECT i, 't', 'k' || i % 1000, CASE WHEN i % 10 = 0 THEN now() + interval '1 day' END, '{}' FROM generate_series(1, 20000) i;
		INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, deliver_at, metadata, payload, state, attempt, due_at)
			SELECT 's', i, 0, i, 't', 1, '', now(), now(), '{}', '{}', 'scheduled', 0, now() - interval '1 minute' FROM generate_series(1, 20000) i;
		INSERT INTO outbox_cancelled ("offset", id) SELECT i, i FROM generate_series(1, 400000) i WHERE i % 2 = 0`)
	require.NoError(t, err)
	target, err := s.Probe(ctx)
	require.NoError(t, err)
	for _, statistics := range []string{"", "ANALYZE outbox, outbox_parked, outbox_cancelled"} {
		_, err = db.ExecContext(ctx, statistics)
		require.NoError(t, err)
		r := &reader{store: s, filter: store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes}, pos: position{base: &origin}, server: target.(*probe).server}
		require.True(t, r.begin(target.(*probe)))
		page := r.statement(r.pos.delta, 1000, 1000)
		text := placeholder.ReplaceAllString(page.String(), `?`)
		for name, c := range map[string]struct {
			query  tables.Expr
			blocks int
		}{
			"page":         {tables.SQL(text, page.args...), 500}, // three blocks for each of a hundred rows
			"due":          {s.run.DueQuery(store.DueQuery{Lane: store.Lanes("s", 1)[0], Now: time.Now(), Limit: 100}), 1500},
			"cancel id":    {s.run.CancelQuery(store.Scheduled{ID: "10"}), 50},
			"cancel a key": {s.run.CancelQuery(store.Scheduled{Key: "k10", Types: []string{"t", "u"}}), 300},
		} {
			blocks, text := blocksOf(t, s, c.query)
			require.Less(t, blocks, c.blocks, "%s %s: %s", name, statistics, text)
		}
	}
}

// The query does not read other deliveries of keys with many followers.
func TestFollowersOfManyKeysReadOnlyWhatTheyReturn(t *testing.T) {
	t.Parallel()
	db, err := OpenDB(postgrestest.DSN(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	ctx := t.Context()
	_, err = Migrate(ctx, db, Config{})
	require.NoError(t, err)
	s, err := Open(ctx, db, Config{})
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, `ALTER TABLE outbox_parked SET (autovacuum_enabled = off)`)
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, `
		INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt)
		SELECT 's', i, i % 1024, i, 't', 1, 'k' || i % 200, now(), '{}', to_jsonb(repeat('x', 200)), 'blocked', 0 FROM generate_series(1, 100000) i`)
	require.NoError(t, err)
	for _, statistics := range []string{"", "ANALYZE outbox_parked"} {
		_, err = db.ExecContext(ctx, statistics)
		require.NoError(t, err)
		for _, halt := range []bool{false, true} {
			blocks, text := blocksOf(t, s, s.run.FollowersQuery("s", manyKeys(100), halt, 5))
			require.Less(t, blocks, 1500, "%s %s", statistics, text) // 500 rows on different pages, out of 5,000 pages
		}
	}
}

// A sink may collect for a day: what is due and what holds back keys does not cost more by that.
func TestCollectedDeliveriesCostLittle(t *testing.T) {
	t.Parallel()
	db, err := OpenDB(postgrestest.DSN(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	ctx := t.Context()
	_, err = Migrate(ctx, db, Config{})
	require.NoError(t, err)
	s, err := Open(ctx, db, Config{})
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, `
		ALTER TABLE outbox_parked SET (autovacuum_enabled = off);
		ALTER TABLE outbox_collections SET (autovacuum_enabled = off);
		INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, due_at, collect_group, collection)
			SELECT 's', i, i % 1024, i, 't', 1, 'k' || i % 20000, now(), '{}', '{}', 'collecting', 0, CASE WHEN i <= 100 THEN now() END, 'k' || i % 20000, CASE WHEN i <= 1000 THEN 'n' ELSE '' END
			FROM generate_series(1, 200000) i;
		INSERT INTO outbox_collections (sink, collect_group, slot, members, due_at, due_by, closed)
			SELECT 's', 'k' || i, i % 1024, 10, now() + i * interval '1 second', now() + interval '1 day', CASE WHEN i <= 100 THEN 'n' ELSE '' END FROM generate_series(0, 19999) i`)
	require.NoError(t, err)
	lane, now := store.Lanes("s", 1)[0], time.Now()
	for _, statistics := range []string{"", "ANALYZE outbox_parked, outbox_collections"} {
		_, err = db.ExecContext(ctx, statistics)
		require.NoError(t, err)
		for name, c := range map[string]struct {
			query  tables.Expr
			blocks int
		}{
			"due":          {s.run.DueQuery(store.DueQuery{Lane: lane, Now: now, Limit: 100}), 100},
			"next due":     {s.run.NextDueQuery("s", now), 20},
			"held keys":    {s.run.HeldKeysQuery(lane, true, "", 100), 20},
			"followers":    {s.run.FollowersQuery("s", manyKeys(100), true, 5), 400},
			"due groups":   {s.run.DueGroupsQuery(lane, now.Add(5*time.Minute), 100), 300},
			"next group":   {s.run.NextGroupQuery(lane, now.Add(5*time.Minute)), 300},
			"open members": {s.run.OpenMembersQuery("s", manyKeys(100), 101), 2500},
			"members":      {s.run.MembersQuery("s", "n", manyKeys(100)), 700},
		} {
			blocks, text := blocksOf(t, s, c.query)
			t.Logf("%s %s: %d blocks", name, statistics, blocks)
			require.Less(t, blocks, c.blocks, "%s %s: %s", name, statistics, text)
		}
	}
}

// There may be many endpoints and attempts, of which a query returns few.
func TestQueriesOfEndpointsReadLittleMoreThanTheyReturn(t *testing.T) {
	t.Parallel()
	db, err := OpenDB(postgrestest.DSN(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	ctx := t.Context()
	_, err = Migrate(ctx, db, Config{})
	require.NoError(t, err)
	s, err := Open(ctx, db, Config{})
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, `
		ALTER TABLE outbox_endpoints SET (autovacuum_enabled = off);
		ALTER TABLE outbox_attempts SET (autovacuum_enabled = off);
		INSERT INTO outbox_endpoints (id, tenant, url, description, types, only_if, private, rate, failing_since)
			SELECT 'e' || i, 'k' || i % 20000, repeat('x', 200), '', '[]', '', '', '', CASE WHEN i % 10000 = 0 THEN now() END FROM generate_series(1, 60000) i;
		INSERT INTO outbox_attempts (id, endpoint, endpoint_created_at, tenant, delivery, notification, log_offset, type, number, at, hour, duration, status, failed, error, request, answer, until)
			SELECT to_char(i, '000000'), e.id, created_at, tenant, 'd' || i, '', i, '', 1, now(), i / 10000, 0, 200, i % 1000 = 0, '', '{}', repeat('x', 500), now() + i * interval '1 second'
			FROM generate_series(1, 100000) i JOIN outbox_endpoints e ON e.id = 'e' || 1 + i % 100`)
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, `VACUUM ANALYZE outbox_endpoints, outbox_attempts`)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		query  tables.Expr
		blocks int
	}{
		"of tenants":              {tables.EndpointsQuery(store.EndpointQuery{Tenants: manyKeys(100), Enabled: true}), 700},
		"of ids":                  {tables.EndpointsQuery(store.EndpointQuery{IDs: []string{"e1", "e2", "e3"}}), 20},
		"page":                    {tables.EndpointsQuery(store.EndpointQuery{After: store.EndpointPlace{Tenant: "k1", ID: "e1"}, Limit: 10}), 100},
		"in trouble":              {tables.EndpointsQuery(store.EndpointQuery{Troubled: true}), 100},
		"counts":                  {tables.EndpointCountsQuery(100), 200},
		"attempts of a tenant":    {s.run.AttemptsQuery(store.AttemptQuery{Tenant: "k1", Limit: 10}), 100},
		"attempts at an endpoint": {s.run.AttemptsQuery(store.AttemptQuery{Tenant: "k1", Endpoint: "e1", Limit: 10}), 100},
		"attempts of a delivery":  {s.run.AttemptsQuery(store.AttemptQuery{Tenant: "k1", Delivery: "d100", Limit: 10}), 30},
		"attempts by hour":        {tables.AttemptHoursQuery("k1", "e1", time.Time{}), 100}, // of 1,000 rows
	} {
		blocks, text := blocksOf(t, s, c.query)
		require.Less(t, blocks, c.blocks, "%s: %s", name, text)
	}
}

func manyKeys(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint("k", i))
	}
	return keys
}

// blocksOf runs a query under EXPLAIN, and returns the number of blocks that it read, and the plan.
func blocksOf(t *testing.T, s *Store, query tables.Expr) (blocks int, text []byte) {
	t.Helper()
	require.NoError(t, s.run.Row(t.Context(), s.db, `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ?`, query).Scan(&text))
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	require.NoError(t, json.Unmarshal(text, &plans))
	return plans[0].Plan.Hit + plans[0].Plan.Read, text
}
