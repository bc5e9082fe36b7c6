package postgres_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// with adds a session parameter to an address.
func with(t *testing.T, dsn, name, value string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

func TestAPrefixMayBeAWordOfSQLAndNameASchema(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"order", "user", "group", "select", "billing.outbox", "table.order"} {
		for name, rows := range map[string]int64{"": 0, ", partitioned": 10} {
			t.Run(prefix+name, func(t *testing.T) {
				t.Parallel()
				ctx := t.Context()
				c := postgres.Config{Prefix: prefix, PartitionRows: rows, Receipts: true}
				db := newDB(t)
				s := openStore(t, db, c)
				applied, err := postgres.Migrate(ctx, db, c)
				require.NoError(t, err)
				require.Empty(t, applied, "migrated twice")
				l, err := lease(t, s, store.NewLane("sink", 0, 1))
				require.NoError(t, err)
				_, err = db.ExecContext(ctx, s.InsertInto()+` ('a', 'a', 1, '', $1, NULL, '{}', '1')`, time.Now().Add(-time.Hour))
				require.NoError(t, err)
				reader := readerFrom(t, s, l.Position)
				ids, end, err := rest(ctx, s, reader)
				require.NoError(t, err)
				require.Equal(t, []string{"a"}, ids)
				require.NoError(t, s.Checkpoint(ctx, store.Checkpoint{Lease: l, TTL: time.Minute, Number: 1, Position: end}))
				_, err = s.Trace(ctx, store.TraceQuery{ID: "a"})
				require.NoError(t, err)
				require.NoError(t, s.Announce(ctx))
				_, err = s.ExtendPartitions(ctx)
				require.NoError(t, err)
				_, err = s.PrunePartitions(ctx, store.Pruning{Age: time.Minute, Limit: 10})
				require.NoError(t, err)
				require.NoError(t, s.Release(ctx, l))

				empty := newDB(t)
				script, err := postgres.MigrationSQL(c)
				require.NoError(t, err)
				exec(t, empty, script)
				_, err = postgres.Open(ctx, empty, c)
				require.NoError(t, err)
			})
		}
	}
}

func TestPrefixesThatAreNotNamesAreRefused(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"9", "Outbox", "a.b.c", ".outbox", "billing.", `billing."outbox"`, "a-b", "billing.9", "out box", "1st", `x"; DROP TABLE users; --`,
		"a_schema_that_is_rather_long_for_a_channel_name.outbox_of_forty_characters_at_the_most_"} {
		_, err := postgres.MigrationSQL(postgres.Config{Prefix: prefix})
		require.ErrorIs(t, err, store.ErrPrefix, prefix)
		_, err = postgres.Migrate(t.Context(), nil, postgres.Config{Prefix: prefix})
		require.ErrorIs(t, err, store.ErrPrefix, prefix)
	}
}

// A tenant's search path, or one that remains in a pooler's session, must not lead a store to another log.
func TestAStoreUsesItsSchemaWithAnySearchPath(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dsn := postgrestest.DSN(t)
	db := openDB(t, dsn)
	db.SetMaxOpenConns(1)
	exec(t, db, `CREATE SCHEMA tenant`)
	own := openStore(t, db, postgres.Config{})
	other := openStore(t, openDB(t, with(t, dsn, "search_path", "tenant")), postgres.Config{})
	require.Contains(t, other.InsertInto(), `"tenant"."outbox"`)
	exec(t, db, `INSERT INTO public.outbox (id, type, payload) VALUES ('ours', 'a', '1')`,
		`INSERT INTO tenant.outbox (id, type, payload) VALUES ('theirs', 'a', '1')`,
		`SET search_path = tenant, public`)
	_, err := own.Cut(ctx, "sink", 1, store.StartOldest)
	require.NoError(t, err)
	reader, err := own.NewReader(nil, everything)
	require.NoError(t, err)
	ids, _, err := rest(ctx, own, reader)
	require.NoError(t, err)
	require.Equal(t, []string{"ours"}, ids)
	sample, err := own.Sample(ctx, store.SampleQuery{})
	require.NoError(t, err)
	require.Len(t, sample.Sinks, 1)
	sample, err = other.Sample(ctx, store.SampleQuery{})
	require.NoError(t, err)
	require.Empty(t, sample.Sinks)

	again, err := postgres.Open(ctx, db, postgres.Config{Prefix: "public.outbox"})
	require.NoError(t, err)
	require.Contains(t, again.InsertInto(), `"public"."outbox"`)
}

// Another table with the same name is another log, even if its sequence is the same.
func TestARecreatedLogIsRecognizedByItsTable(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{PartitionRows: 1000})
	const insert = `INSERT INTO outbox (id, type, payload) VALUES ('a', 'a', '1')`
	exec(t, db, insert)
	reader := readerFrom(t, s, nil)
	ids, _, err := rest(ctx, s, reader)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, ids)

	exec(t, db, `ALTER SEQUENCE outbox_offset_seq OWNED BY NONE`,
		`CREATE TABLE anew (LIKE outbox INCLUDING ALL)`, `INSERT INTO anew (id, type, payload) VALUES ('before', 'a', '1')`,
		`DROP TABLE outbox`, `ALTER TABLE anew RENAME TO outbox`, insert)
	target, err := s.Probe(ctx)
	require.NoError(t, err)
	page, err := reader.Next(ctx, target, 100)
	require.NoError(t, err)
	require.Contains(t, page.Rebased, "another table")
	require.Len(t, page.Envelopes, 2)
}

func TestMigrateNamesThePrivilegeToCreateASchema(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	owner := openDB(t, dsn)
	role, address := newRole(t, owner, dsn)
	db := openDB(t, address)
	_, err := postgres.Migrate(t.Context(), db, postgres.Config{Prefix: "billing.outbox"})
	var advised *store.AdvisedError
	require.ErrorAs(t, err, &advised)
	require.Contains(t, advised.Advice(), `CREATE SCHEMA "billing"`)
	exec(t, owner, `CREATE SCHEMA billing AUTHORIZATION `+role)
	_, err = postgres.Migrate(t.Context(), db, postgres.Config{Prefix: "billing.outbox"})
	require.NoError(t, err)
}

func TestAnnouncementsOfAnOutboxInASchemaArrive(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	db := openDB(t, dsn)
	s := openStore(t, db, postgres.Config{Prefix: "billing.order", Listen: dsn})
	heard := make(chan store.News, 10)
	go func() { _ = s.Listen(t.Context(), func(n store.News) { heard <- n }) }()
	require.Equal(t, store.NewsUnknown, <-heard)
	require.NoError(t, s.Announce(t.Context()))
	require.Equal(t, store.NewsRows, <-heard)
	exec(t, db, `NOTIFY "billing.order"`)
	require.Equal(t, store.NewsRows, <-heard)
}
