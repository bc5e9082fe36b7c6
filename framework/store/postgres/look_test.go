package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// caughtUp reads to the end and returns the reader.
func caughtUp(t *testing.T, s *postgres.Store, filter store.Filter) store.Looker {
	t.Helper()
	r, err := s.NewReader(nil, filter)
	require.NoError(t, err)
	target := probeOf(t, s)
	for {
		page := nextPage(t, r, target, 1000)
		if page.CaughtUp {
			return r.(store.Looker)
		}
	}
}

// next returns the ids of a page, and whether the page ends at the target.
func next(ctx context.Context, t *testing.T, r store.Reader, target store.Target) (ids []string, caughtUp bool) {
	t.Helper()
	page, err := r.Next(ctx, target, 1000)
	require.NoError(t, err)
	for i := range page.Envelopes {
		ids = append(ids, page.Envelopes[i].ID)
	}
	return ids, page.CaughtUp
}

func TestAProbeReturnsFewNewRows(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	exec := func(q store.Execer, query string) {
		t.Helper()
		exec(t, q, query)
	}
	insert := func(q store.Execer, id, typ string) {
		t.Helper()
		exec(q, `INSERT INTO outbox (id, type, payload) VALUES ('`+id+`', '`+typ+`', '{}')`)
	}
	insert(db, "before", "wanted")
	late := begin(t, db)
	insert(late, "late", "wanted")
	open := begin(t, db)
	insert(open, "open", "wanted")
	r := caughtUp(t, s, store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.TypeFilter{Names: []string{"wanted"}}})

	insert(db, "first", "wanted")
	insert(db, "other", "not")
	require.NoError(t, late.Commit())
	undone, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	insert(undone, "undone", "wanted")
	require.NoError(t, undone.Rollback())
	insert(db, "second", "wanted")
	target, err := r.Look(t.Context())
	require.NoError(t, err)
	insert(db, "after", "wanted")

	noQuestion, cancel := context.WithCancel(t.Context())
	cancel()
	ids, all := next(noQuestion, t, r, target)
	require.Equal(t, []string{"late", "first", "second"}, ids)
	require.True(t, all)

	require.NoError(t, open.Commit())
	target, err = r.Look(t.Context())
	require.NoError(t, err)
	ids, all = next(t.Context(), t, r, target)
	require.Equal(t, []string{"open", "after"}, ids)
	require.True(t, all)
	target, err = r.Look(t.Context())
	require.NoError(t, err)
	ids, all = next(t.Context(), t, r, target)
	require.Empty(t, ids)
	require.True(t, all)
}

func TestAProbeReturnsNoRowsIfThereAreMany(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	r := caughtUp(t, s, store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes})
	exec(t, db, `INSERT INTO outbox (id, type, payload) SELECT 'r' || i, 't', '{}' FROM generate_series(1, 700) i`)
	target, err := r.Look(t.Context())
	require.NoError(t, err)
	var found []string
	for all := false; !all; {
		var ids []string
		ids, all = next(t.Context(), t, r, target)
		found = append(found, ids...)
	}
	require.Len(t, found, 700)
	require.Equal(t, "r1", found[0])
	require.Equal(t, "r700", found[699])

	other := caughtUp(t, s, store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes})
	exec(t, db, `INSERT INTO outbox (id, type, payload) VALUES ('last', 't', '{}')`)
	target, err = r.Look(t.Context())
	require.NoError(t, err)
	for name, reader := range map[string]store.Reader{"its own": r, "another": other} {
		ids, all := next(t.Context(), t, reader, target)
		require.Equal(t, []string{"last"}, ids, fmt.Sprint(name, " reader"))
		require.True(t, all)
	}
}

// A look searches the next 1,000 offsets. What is behind them is not missing, only not looked at.
func TestRowsBehindManyOfOtherTypesAreRead(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	r := caughtUp(t, s, store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.TypeFilter{Names: []string{"wanted"}}})
	exec(t, db, `INSERT INTO outbox (id, type, payload) SELECT 'r' || i, CASE WHEN i IN (1, 1500) THEN 'wanted' ELSE 'not' END, '{}' FROM generate_series(1, 1500) i`)
	target, err := r.Look(t.Context())
	require.NoError(t, err)
	var found []string
	for all := false; !all; {
		var ids []string
		ids, all = next(t.Context(), t, r, target)
		found = append(found, ids...)
	}
	require.Equal(t, []string{"r1", "r1500"}, found)
}
