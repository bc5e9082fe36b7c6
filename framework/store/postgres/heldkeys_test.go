package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// A lane may hold hundreds of thousands of keys. Once the table is analyzed, a page of keys reads no more
// than a page of the index.
func TestAPageOfHeldKeysReadsAPage(t *testing.T) {
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
		SELECT 's', i, i % 1024, i, 't', 1, md5(i::text), now(), '{}', '{}', 'retrying', 0, now() FROM generate_series(1, 100000) i`)
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, `ANALYZE outbox_parked`)
	require.NoError(t, err)
	lane, after, limit := store.Lanes("s", 1)[0], "", 1_000
	for range 2 {
		blocks, text := blocksOf(t, s, s.run.HeldKeysQuery(lane, false, after, limit))
		require.Less(t, blocks, limit*3/2, "%s", text)

		keys, err := s.HeldKeys(ctx, lane, false, after, limit)
		require.NoError(t, err)
		require.Len(t, keys, limit)
		after = keys[limit-1].Key
	}
}
