package privacy_test

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// masterKey returns a local key for tests.
func masterKey(n byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string('a'+rune(n)), 32)))
}

func local(t testing.TB, keys ...string) privacy.Master {
	t.Helper()
	m, err := privacy.LocalKeys(keys...)
	require.NoError(t, err)
	return m
}

func keyring(t testing.TB, s store.PrivateKeys, c privacy.Config) *privacy.Keyring {
	t.Helper()
	k, err := privacy.New(s, c)
	require.NoError(t, err)
	require.NoError(t, k.Prepare(t.Context()))
	return k
}

func envelope(payload string) *notification.Envelope {
	return &notification.Envelope{Type: "t", Version: 1, ID: notification.NewID(), Payload: []byte(payload), Metadata: notification.Metadata{}}
}

// seal encrypts the member a of a payload for a person.
func seal(t testing.TB, k *privacy.Keyring, tx store.Execer, subject, payload string) (*notification.Envelope, error) {
	e := envelope(payload)
	at, err := registry.ParsePointer("/a")
	require.NoError(t, err)
	return e, k.Seal(t.Context(), tx, []privacy.Sealing{{Envelope: e, Values: []registry.PrivateValues{{Subject: subject, At: []registry.Pointer{at}}}}})
}

func sealed(t testing.TB, k *privacy.Keyring, tx store.Execer, subject, payload string) *notification.Envelope {
	t.Helper()
	e, err := seal(t, k, tx, subject, payload)
	require.NoError(t, err)
	return e
}

func revealed(t testing.TB, k *privacy.Keyring, e *notification.Envelope) (string, error) {
	v := k.Views(t.Context(), []*notification.Envelope{e}, sinks.PrivateReveal, false)
	if v[0].Err != nil {
		return "", v[0].Err
	}
	return string(v[0].Envelope.Payload), nil
}

func requireRevealed(t testing.TB, k *privacy.Keyring, want string, e *notification.Envelope) {
	t.Helper()
	got, err := revealed(t, k, e)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func keyOf(e *notification.Envelope) string { return e.Metadata[notification.MetadataPrivateKeys] }

// erase destroys the keys of a person.
func erase(t testing.TB, s store.PrivateKeys, k *privacy.Keyring, subject string) {
	t.Helper()
	hashes, err := k.Subject(t.Context(), subject)
	require.NoError(t, err)
	keys, err := s.PrivateKeysOf(t.Context(), hashes)
	require.NoError(t, err)
	var ids []string
	for _, key := range keys {
		ids = append(ids, key.ID)
	}
	_, err = s.ErasePrivateKeys(t.Context(), "", ids)
	require.NoError(t, err)
}

func open(t testing.TB) (*sql.DB, *sqlite.Store) {
	return outboxtest.SQLite(t, outboxtest.File(t), sqlite.Config{})
}

func begin(t testing.TB, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func TestAKeyThatWasRolledBackEncryptsNothingElse(t *testing.T) {
	t.Parallel()
	db, s := open(t)
	k := keyring(t, s, privacy.Config{Master: local(t, masterKey(0)), Cache: time.Hour})
	tx := begin(t, db)
	first := sealed(t, k, tx, "ada", `{"a":1}`)
	require.Equal(t, keyOf(first), keyOf(sealed(t, k, tx, "ada", `{"a":2}`)), "the transaction finds its own key")
	require.NoError(t, tx.Rollback())

	var last string
	require.EventuallyWithT(t, func(c *assert.CollectT) { // until the key is remembered, which is after a look outside of the transaction
		tx := begin(t, db)
		e := sealed(t, k, tx, "ada", `{"a":3}`)
		require.NoError(t, tx.Commit())
		requireRevealed(t, keyring(t, s, privacy.Config{Master: local(t, masterKey(0))}), `{"a":3}`, e)
		before := last
		last = keyOf(e)
		require.NotEqual(t, keyOf(first), last)
		require.Equal(c, before, last)
	}, 20*time.Second, 100*time.Millisecond)
	_, err := revealed(t, keyring(t, s, privacy.Config{Master: local(t, masterKey(0))}), first)
	require.ErrorIs(t, err, privacy.ErrMissing)
}

// executing is a transaction that can only execute, such as one of pgx.
type executing struct{ tx *sql.Tx }

func (e executing) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return e.tx.ExecContext(ctx, query, args...)
}

func TestARememberedKeyIsUsedInTransactionsThatCannotQuery(t *testing.T) {
	t.Parallel()
	db, s := open(t)
	k := keyring(t, s, privacy.Config{Master: local(t, masterKey(0)), Cache: time.Hour})
	var last string
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		tx := begin(t, db)
		e := sealed(t, k, executing{tx}, "ada", `{"a":1}`)
		require.NoError(t, tx.Commit())
		requireRevealed(t, k, `{"a":1}`, e)
		before := last
		last = keyOf(e)
		require.Equal(c, before, last)
	}, 20*time.Second, 100*time.Millisecond)
}

func TestAnErasedSubjectIsUnreadableAndCanComeBack(t *testing.T) {
	t.Parallel()
	db, s := open(t)
	k := keyring(t, s, privacy.Config{Master: local(t, masterKey(0)), Cache: -1})
	tx := begin(t, db)
	ada, ben := sealed(t, k, tx, "ada", `{"a":"x","b":1}`), sealed(t, k, tx, "ben", `{"a":"y"}`)
	require.NoError(t, tx.Commit())
	requireRevealed(t, k, `{"a":"x","b":1}`, ada)
	erase(t, s, k, "ada")
	requireRevealed(t, k, `{"b":1}`, ada)
	requireRevealed(t, k, `{"a":"y"}`, ben)
	v := k.Views(t.Context(), []*notification.Envelope{ada, ben}, sinks.PrivateReveal, true)
	require.ErrorIs(t, v[0].Err, privacy.ErrErased)
	require.NoError(t, v[1].Err)

	tx = begin(t, db)
	again := sealed(t, k, tx, "ada", `{"a":"z"}`)
	require.NoError(t, tx.Commit())
	requireRevealed(t, k, `{"a":"z"}`, again)
	requireRevealed(t, k, `{"b":1}`, ada)
}

func TestTheMasterKeyIsRotatedWithoutTouchingAnythingElse(t *testing.T) {
	t.Parallel()
	db, s := open(t)
	old := keyring(t, s, privacy.Config{Master: local(t, masterKey(0))})
	tx := begin(t, db)
	e := sealed(t, old, tx, "ada", `{"a":"x"}`)
	require.NoError(t, tx.Commit())

	both := keyring(t, s, privacy.Config{Master: local(t, masterKey(1), masterKey(0))})
	n, err := both.Rotate(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	requireRevealed(t, keyring(t, s, privacy.Config{Master: local(t, masterKey(1))}), `{"a":"x"}`, e)

	lost, err := privacy.New(s, privacy.Config{Master: local(t, masterKey(0))})
	require.NoError(t, err)
	require.ErrorIs(t, lost.Prepare(t.Context()), privacy.ErrMaster)
	require.ErrorIs(t, lost.Check(t.Context()), privacy.ErrMaster)
	_, err = revealed(t, lost, e)
	require.ErrorIs(t, err, privacy.ErrMaster)
	require.ErrorContains(t, err, "add the key with this digest to keys")
	tx = begin(t, db)
	_, err = seal(t, lost, tx, "ada", `{"a":1}`)
	require.ErrorIs(t, err, privacy.ErrMaster, "no second root is made silently")
	second := store.PrivateKey{ID: "second", Wrapped: "AAAA", Under: "local:00000000"}
	require.NoError(t, tx.Rollback())
	require.NoError(t, s.AddPrivateKeys(t.Context(), nil, []store.PrivateKey{second}))
	partly, err := privacy.New(s, privacy.Config{Master: local(t, masterKey(1))})
	require.NoError(t, err)
	requireRevealed(t, partly, `{"a":"x"}`, e)
	require.ErrorIs(t, partly.Check(t.Context()), privacy.ErrMaster, "one of two roots")
	_, err = partly.Subject(t.Context(), "ada")
	require.ErrorIs(t, err, privacy.ErrMaster, "an erasure would miss what the other root has")
	_, err = partly.Rotate(t.Context())
	require.ErrorIs(t, err, privacy.ErrMaster)
	without, err := privacy.New(s, privacy.Config{})
	require.NoError(t, err)
	_, err = revealed(t, without, e)
	require.ErrorIs(t, err, privacy.ErrMaster)
}

func TestAnOutboxGoesOnAfterItsMasterKeyWasLost(t *testing.T) {
	t.Parallel()
	db, s := open(t)
	k := keyring(t, s, privacy.Config{Master: local(t, masterKey(0))})
	tx := begin(t, db)
	e := sealed(t, k, tx, "ada", `{"a":"x","b":1}`)
	require.NoError(t, tx.Commit())

	erase(t, s, k, "ada") // by the ids of all keys, as docs/privacy.md says
	_, err := db.ExecContext(t.Context(), `DELETE FROM outbox_keys WHERE subject = ''`)
	require.NoError(t, err)
	again := keyring(t, s, privacy.Config{Master: local(t, masterKey(1))})
	requireRevealed(t, again, `{"b":1}`, e)
	tx = begin(t, db)
	e = sealed(t, again, tx, "ada", `{"a":"y"}`)
	require.NoError(t, tx.Commit())
	requireRevealed(t, again, `{"a":"y"}`, e)
}

func TestProcessesThatStartTogetherReadEachOther(t *testing.T) {
	t.Parallel()
	db, s := open(t)
	rings := make([]*privacy.Keyring, 4)
	var work sync.WaitGroup
	for i := range rings {
		work.Go(func() { rings[i] = keyring(t, s, privacy.Config{Master: local(t, masterKey(0)), Cache: -1}) })
	}
	work.Wait()
	var all []*notification.Envelope
	for _, k := range rings {
		tx := begin(t, db)
		all = append(all, sealed(t, k, tx, "ada", `{"a":1}`))
		require.NoError(t, tx.Commit())
	}
	for _, k := range rings {
		for _, e := range all {
			requireRevealed(t, k, `{"a":1}`, e)
		}
	}
	erase(t, s, rings[0], "ada")
	for _, e := range all {
		requireRevealed(t, rings[3], `{}`, e)
	}
}

func TestPrivateValuesNeedASubject(t *testing.T) {
	t.Parallel()
	db, s := open(t)
	k := keyring(t, s, privacy.Config{Master: local(t, masterKey(0))})
	e, err := seal(t, k, begin(t, db), "", `{"a":1}`)
	require.ErrorIs(t, err, privacy.ErrSubject)
	require.Equal(t, `{"a":1}`, string(e.Payload))
}

func TestTheKeysInTheDatabaseShowNeitherPersonsNorKeys(t *testing.T) {
	t.Parallel()
	db, s := open(t)
	k := keyring(t, s, privacy.Config{Master: local(t, masterKey(0))})
	tx := begin(t, db)
	sealed(t, k, tx, "ada@example.com", `{"a":1}`)
	require.NoError(t, tx.Commit())
	other := keyring(t, s, privacy.Config{Master: local(t, masterKey(0))})
	hashes, err := other.Subject(t.Context(), "ada@example.com")
	require.NoError(t, err)
	keys, err := s.PrivateKeysOf(t.Context(), hashes)
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.Regexp(t, `^[0-9a-f]{64}$`, keys[0].Subject)

	_, err = db.ExecContext(t.Context(), `UPDATE outbox_keys SET id = 'stolen' WHERE id = ?`, keys[0].ID)
	require.NoError(t, err)
	e := envelope(`{}`)
	e.Metadata = notification.Metadata{notification.MetadataPrivateKeys: "stolen"}
	_, err = revealed(t, other, e)
	require.ErrorIs(t, err, privacy.ErrMaster, "a wrapped key is bound to its row")
}

func TestWhatProgramsInsertWithSQLIsEncryptedByRules(t *testing.T) {
	t.Parallel()
	_, s := open(t)
	k := keyring(t, s, privacy.Config{Master: local(t, masterKey(0)), Cache: -1, Rules: map[string]privacy.Rule{
		"t": {Subject: "/customer/id", Fields: []string{"/customer/email"}},
		"w": {Subject: "/id", Fields: []string{""}},
	}})
	const order = `{"customer":{"id":7,"email":"ada@example.com"},"n":1}`
	all := []notification.Envelope{*envelope(order), *envelope(`{"customer":{"email":"x"}}`), *envelope(`no JSON`), *envelope(`{"id":"ben"}`), *envelope(order)}
	all[3].Type, all[4].Type = "w", "other"
	require.NoError(t, k.SealByRules(t.Context(), nil, all))
	require.NotContains(t, string(all[0].Payload), "ada")
	require.NotContains(t, string(all[1].Payload), `"x"`)
	require.Equal(t, order, string(all[4].Payload))
	requireRevealed(t, k, order, &all[0])
	requireRevealed(t, k, `{"id":"ben"}`, &all[3])
	erase(t, s, k, "7")
	requireRevealed(t, k, `{"customer":{"id":7},"n":1}`, &all[0])
	erase(t, s, k, all[1].ID)
	requireRevealed(t, k, `{"customer":{}}`, &all[1])

	plain := envelope(order)
	payload, is := k.Without(plain, "7")
	require.True(t, is)
	require.Equal(t, `{"customer":{"id":7,"email":null},"n":1}`, string(payload))
	plain.Payload = payload
	_, is = k.Without(plain, "7")
	require.False(t, is, "a second time")
	_, is = k.Without(plain, "8")
	require.False(t, is)
}

func TestMistakesInTheConfigurationAreNamed(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]privacy.Config{
		"rules.t.subject is missing": {Master: local(t, masterKey(0)), Rules: map[string]privacy.Rule{"t": {Fields: []string{"/a"}}}},
		"rules.t.fields is missing":  {Master: local(t, masterKey(0)), Rules: map[string]privacy.Rule{"t": {Subject: "/a"}}},
		"rules.t.fields: \"a\"":      {Master: local(t, masterKey(0)), Rules: map[string]privacy.Rule{"t": {Subject: "/a", Fields: []string{"a"}}}},
		"overlap":                    {Master: local(t, masterKey(0)), Rules: map[string]privacy.Rule{"t": {Subject: "/a", Fields: []string{"/b", "/b/c"}}}},
		"no master key":              {Rules: map[string]privacy.Rule{"t": {Subject: "/a", Fields: []string{"/b"}}}},
	} {
		_, err := privacy.New(nil, c)
		require.ErrorIs(t, err, privacy.ErrConfig)
		require.ErrorContains(t, err, want)
	}
	for _, keys := range [][]string{nil, {"short"}, {masterKey(0), "!"}} {
		_, err := privacy.LocalKeys(keys...)
		require.ErrorIs(t, err, privacy.ErrConfig)
	}
	_, err := privacy.LocalKeys(masterKey(0), "secret")
	require.NotContains(t, err.Error(), "secret")
	require.True(t, errors.Is(err, privacy.ErrConfig))
}
