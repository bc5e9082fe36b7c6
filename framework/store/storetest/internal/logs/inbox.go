package logs

import (
	"database/sql"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

var inboxFacts = []kit.Fact{
	{"an id is new once for each consumer", inboxOnce},
	{"an id of a transaction that rolled back is new again", inboxRollback},
	{"of simultaneous transactions one that commits is the first", inboxTogether},
	{"old ids are removed, at most as many as asked for", oldIDsGo},
}

// first asks for an id in a separate transaction.
func first(t *testing.T, o *kit.Outbox, consumer, id string, commit bool) bool {
	t.Helper()
	tx := o.Tx(t)
	first, err := o.First(t.Context(), tx, consumer, id)
	require.NoError(t, err)
	if commit {
		require.NoError(t, tx.Commit())
	} else {
		require.NoError(t, tx.Rollback())
	}
	return first
}

func inboxOnce(t *testing.T, o *kit.Outbox) {
	tx := o.Tx(t)
	for _, want := range []bool{true, false} {
		first, err := o.First(t.Context(), tx, "mailer", "a")
		require.NoError(t, err)
		require.Equal(t, want, first, "within one transaction too")
	}
	require.NoError(t, tx.Commit())
	require.False(t, first(t, o, "mailer", "a", true))
	require.True(t, first(t, o, "mailer", "b", true))
	require.True(t, first(t, o, "ledger", "a", true))
}

func inboxRollback(t *testing.T, o *kit.Outbox) {
	require.True(t, first(t, o, "mailer", "a", false))
	require.True(t, first(t, o, "mailer", "a", true))
	require.False(t, first(t, o, "mailer", "a", false))
}

func inboxTogether(t *testing.T, o *kit.Outbox) {
	for _, id := range []string{"a", "b", "c", "d"} {
		require.Equal(t, 1, o.Together(t, func(tx *sql.Tx) (int, error) { return one(o.First(t.Context(), tx, "mailer", id)) }))
	}
}

func oldIDsGo(t *testing.T, o *kit.Outbox) {
	for _, id := range []string{"a", "b", "c", "d"} {
		require.True(t, first(t, o, "mailer", id, true))
	}
	o.Exec(t, `UPDATE outbox_inbox SET seen_at = {2001-02-03T04:05:06Z} WHERE id <> 'b'`)
	for _, want := range []int{2, 1, 0} {
		removed, err := o.PruneLeftovers(t.Context(), store.LeftoverIDs, 24*time.Hour, 2)
		require.NoError(t, err)
		require.Equal(t, want, removed)
	}
	require.False(t, first(t, o, "mailer", "b", true), "it is young")
	require.True(t, first(t, o, "mailer", "a", true), "it was removed")
}

// one returns 1 for true.
func one(ok bool, err error) (int, error) {
	if ok {
		return 1, err
	}
	return 0, err
}
