package logs

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"
)

// keyFacts are about the keys of private values.
var keyFacts = []kit.Fact{
	{"a key exists if its transaction commits", keysInTx},
	{"the newest living key of a subject is found", newestKey},
	{"erased keys stay as ids without a key", eraseKeys},
	{"only roots are wrapped again", rewrapRoots},
}

func privateKey(id, subject string) store.PrivateKey {
	return store.PrivateKey{ID: id, Subject: subject, Wrapped: "wrapped-" + id, Under: "root"}
}

func addKeys(t *testing.T, o *kit.Outbox, keys ...store.PrivateKey) {
	t.Helper()
	require.NoError(t, o.AddPrivateKeys(t.Context(), nil, keys))
}

// keyIDs returns the ids of keys, and checks their times.
func keyIDs(t *testing.T, keys []store.PrivateKey, err error) (ids []string) {
	t.Helper()
	require.NoError(t, err)
	for _, k := range keys {
		require.False(t, k.CreatedAt.IsZero())
		require.Equal(t, k.Wrapped == "", !k.ErasedAt.IsZero())
		ids = append(ids, k.ID)
	}
	return ids
}

func keysInTx(t *testing.T, o *kit.Outbox) {
	tx := o.Tx(t)
	require.NoError(t, o.AddPrivateKeys(t.Context(), tx, []store.PrivateKey{privateKey("a", "ada"), privateKey("b", "ben")}))
	k, found, err := o.PrivateKeyOf(t.Context(), tx, []string{"ada"})
	require.NoError(t, err)
	require.True(t, found, "the transaction sees it")
	require.Equal(t, "wrapped-a", k.Wrapped)
	require.NoError(t, tx.Rollback())
	_, found, err = o.PrivateKeyOf(t.Context(), nil, []string{"ada"})
	require.NoError(t, err)
	require.False(t, found)

	tx = o.Tx(t)
	require.NoError(t, o.AddPrivateKeys(t.Context(), tx, []store.PrivateKey{privateKey("a", "ada")}))
	require.NoError(t, tx.Commit())
	keys, err := o.PrivateKeysByID(t.Context(), []string{"a", "b"})
	require.Equal(t, []string{"a"}, keyIDs(t, keys, err))
	require.Equal(t, store.PrivateKey{ID: "a", Subject: "ada", Wrapped: "wrapped-a", Under: "root", CreatedAt: keys[0].CreatedAt}, keys[0])
	none, err := o.PrivateKeysByID(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

func newestKey(t *testing.T, o *kit.Outbox) {
	addKeys(t, o, privateKey("b", "ada"))
	addKeys(t, o, privateKey("c", "ada"), privateKey("a", "ada"), privateKey("d", "ben"), privateKey("r", ""))
	o.Exec(t, `UPDATE outbox_keys SET created_at = {2001-02-03T04:05:06Z} WHERE id = 'b'`, `UPDATE outbox_keys SET created_at = {2002-02-03T04:05:06Z} WHERE id IN ('a', 'c')`)
	k, found, err := o.PrivateKeyOf(t.Context(), nil, []string{"ada", "else"})
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "c", k.ID)
	keys, err := o.PrivateKeysOf(t.Context(), []string{"ada"})
	require.Equal(t, []string{"b", "a", "c"}, keyIDs(t, keys, err))
	keys, err = o.PrivateKeysOf(t.Context(), []string{""})
	require.Equal(t, []string{"r"}, keyIDs(t, keys, err))
}

func eraseKeys(t *testing.T, o *kit.Outbox) {
	addKeys(t, o, privateKey("a", "ada"), privateKey("b", "ada"), privateKey("c", "ben"), privateKey("r", ""))
	for _, want := range []int{3, 0} { // "gone" is not in this database, as after a restore
		n, err := o.ErasePrivateKeys(t.Context(), "", []string{"a", "b", "gone", "r"})
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	erased, err := o.ErasedPrivateKeys(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "gone"}, erased)
	keys, err := o.PrivateKeysByID(t.Context(), []string{"a", "gone", "r", "c"})
	require.ElementsMatch(t, []string{"a", "gone", "r", "c"}, keyIDs(t, keys, err))
	_, found, err := o.PrivateKeyOf(t.Context(), nil, []string{"ada"})
	require.NoError(t, err)
	require.False(t, found)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = o.ErasePrivateKeys(ended, "", []string{"c"})
	require.Error(t, err)
	_, found, err = o.PrivateKeyOf(t.Context(), nil, []string{"ben"})
	require.NoError(t, err)
	require.True(t, found)
}

func rewrapRoots(t *testing.T, o *kit.Outbox) {
	addKeys(t, o, privateKey("a", "ada"), privateKey("r", ""))
	for _, id := range []string{"a", "r"} {
		require.NoError(t, o.RewrapPrivateKey(t.Context(), store.PrivateKey{ID: id, Wrapped: "again", Under: "other"}))
	}
	keys, err := o.PrivateKeysByID(t.Context(), []string{"a", "r"})
	require.NoError(t, err)
	byID := map[string]string{keys[0].ID: keys[0].Wrapped + keys[0].Under, keys[1].ID: keys[1].Wrapped + keys[1].Under}
	require.Equal(t, map[string]string{"a": "wrapped-aroot", "r": "againother"}, byID)
}
