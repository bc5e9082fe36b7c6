package sqlite_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

func TestATextThatIsWrittenAsABlobIsRefused(t *testing.T) {
	t.Parallel()
	_, db := open(t, sqlite.Config{})
	row := map[string]string{"type": "order.placed", "id": "n-1", "key": "k", "metadata": "{}", "occurred_on": "2026-01-02T03:04:05.000000Z", "deliver_at": "2026-01-02T03:04:05.000000Z"}
	insert := func(blob string) error {
		values := make(map[string]any)
		for column, text := range row {
			if values[column] = text; column == blob {
				values[column] = []byte(text)
			}
		}
		_, err := db.ExecContext(t.Context(), `INSERT INTO outbox (type, id, key, metadata, occurred_on, deliver_at, payload) VALUES (?, ?, ?, ?, ?, ?, '{}')`,
			values["type"], values["id"], values["key"], values["metadata"], values["occurred_on"], values["deliver_at"])
		return err
	}
	require.NoError(t, insert(""))
	for column := range row {
		require.ErrorContains(t, insert(column), "constraint failed", column)
	}
}

func TestATextThatIsNotUTF8IsReadAsOneAndSettled(t *testing.T) {
	t.Parallel()
	s, db := open(t, sqlite.Config{})
	for _, columns := range []string{"CAST(x'62eda080' AS TEXT), 'a', 'a'", "'b', CAST(x'63eda080ff' AS TEXT), 'b'", "'c', 'c', CAST(x'64c3' AS TEXT)"} {
		_, err := db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, key, payload) VALUES (`+columns+`, '{}')`)
		require.NoError(t, err)
	}
	lane := store.Lanes("mail", 1)[0]
	_, err := s.Cut(t.Context(), "mail", 1, store.StartOldest)
	require.NoError(t, err)
	lease, err := s.Acquire(t.Context(), lane, "w1", time.Hour)
	require.NoError(t, err)
	reader, err := s.NewReader(lease.Position, store.Filter{Slots: lane.Slots, Types: notification.AllTypes})
	require.NoError(t, err)
	target, err := s.Probe(t.Context())
	require.NoError(t, err)
	page, err := reader.Next(t.Context(), target, 10)
	require.NoError(t, err)
	parked := make([]store.Parked, len(page.Envelopes))
	refs := make([]store.Ref, len(page.Envelopes))
	for i, e := range page.Envelopes {
		require.NoError(t, e.Validate())
		parked[i], refs[i] = store.Parked{Envelope: e, State: store.StateRetrying, DueAt: e.OccurredOn}, store.RefOf(&e)
	}
	require.Len(t, parked, 3)
	require.Equal(t, "b?", parked[0].Envelope.ID)
	require.NoError(t, s.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Hour, Number: 1, Position: page.End, Park: parked}))
	require.NoError(t, s.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Hour, Number: 2, Unpark: refs}))
	left, err := s.FindParked(t.Context(), store.ParkedFilter{}, store.ParkedPlace{}, 10)
	require.NoError(t, err)
	require.Empty(t, left)
}
