package logs

import (
	"database/sql"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

// claimFacts are about uniqueness keys.
var claimFacts = []kit.Fact{
	{"a uniqueness key of a type is taken once in a period", claimOnce},
	{"a claim that rolls back or is withdrawn has no effect", claimRollback},
	{"of simultaneous claims one that commits holds", claimTogether},
	{"old claims are removed, at most as many as asked for", oldClaimsGo},
}

func claimed(typ, key string) store.Claim { return store.Claim{Type: typ, Key: key, Period: time.Hour} }

// claimIn claims a key in a transaction.
func claimIn(t *testing.T, o *kit.Outbox, tx *sql.Tx, c store.Claim) bool {
	t.Helper()
	free, err := o.Claim(t.Context(), tx, c)
	require.NoError(t, err)
	return free
}

// claim claims a key in a separate transaction.
func claim(t *testing.T, o *kit.Outbox, c store.Claim) bool {
	t.Helper()
	tx := o.Tx(t)
	free := claimIn(t, o, tx, c)
	require.NoError(t, tx.Commit())
	return free
}

func claimOnce(t *testing.T, o *kit.Outbox) {
	tx := o.Tx(t)
	require.True(t, claimIn(t, o, tx, claimed("order.placed", "a")))
	require.False(t, claimIn(t, o, tx, claimed("order.placed", "a")), "within one transaction too")
	until, err := o.ClaimedUntil(t.Context(), tx, claimed("order.placed", "a"))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Hour), until, time.Minute)
	until, err = o.ClaimedUntil(t.Context(), tx, claimed("order.placed", "b"))
	require.NoError(t, err)
	require.Zero(t, until)
	require.NoError(t, tx.Commit())
	require.False(t, claim(t, o, claimed("order.placed", "a")))
	require.True(t, claim(t, o, claimed("order.placed", "b")))
	require.True(t, claim(t, o, claimed("order.paid", "a")))
	o.Exec(t, `UPDATE outbox_unique SET until = {2001-02-03T04:05:06Z} WHERE type = 'order.placed'`)
	require.True(t, claim(t, o, claimed("order.placed", "a")), "its period is over")
	require.False(t, claim(t, o, claimed("order.placed", "a")))
	require.True(t, claim(t, o, store.Claim{Type: "order.placed", Key: "c", Period: 200 * 365 * 24 * time.Hour}))
	require.False(t, claim(t, o, claimed("order.placed", "c")))
}

func claimRollback(t *testing.T, o *kit.Outbox) {
	tx := o.Tx(t)
	require.True(t, claimIn(t, o, tx, claimed("order.placed", "a")))
	require.NoError(t, tx.Rollback())

	tx = o.Tx(t)
	require.True(t, claimIn(t, o, tx, claimed("order.placed", "a")))
	require.NoError(t, o.Unclaim(t.Context(), tx, claimed("order.placed", "a")))
	require.True(t, claimIn(t, o, tx, claimed("order.placed", "a")), "at once")
	require.NoError(t, o.Unclaim(t.Context(), tx, claimed("order.placed", "a")))
	require.NoError(t, tx.Commit())
	require.True(t, claim(t, o, claimed("order.placed", "a")))
}

func claimTogether(t *testing.T, o *kit.Outbox) {
	for _, key := range []string{"a", "b", "c", "d"} {
		require.Equal(t, 1, o.Together(t, func(tx *sql.Tx) (int, error) { return one(o.Claim(t.Context(), tx, claimed("order.placed", key))) }))
	}
}

func oldClaimsGo(t *testing.T, o *kit.Outbox) {
	for _, key := range []string{"a", "b", "c", "d"} {
		require.True(t, claim(t, o, claimed("order.placed", key)))
	}
	o.Exec(t, `UPDATE outbox_unique SET until = {2001-02-03T04:05:06Z} WHERE {key} <> 'b'`)
	for _, want := range []int{2, 1, 0} {
		removed, err := o.PruneLeftovers(t.Context(), store.LeftoverClaims, 0, 2)
		require.NoError(t, err)
		require.Equal(t, want, removed)
	}
	require.False(t, claim(t, o, claimed("order.placed", "b")))
}
