package outbox_test

import (
	"context"
	"database/sql"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

type message struct{ From, To, Sender, Receiver, Text string }

func newKeyring(t *testing.T, s *sqlite.Store, rules map[string]privacy.Rule) *privacy.Keyring {
	t.Helper()
	master, err := privacy.LocalKeys(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("m", 32))))
	require.NoError(t, err)
	k, err := privacy.New(s, privacy.Config{Master: master, Cache: -1, Rules: rules})
	require.NoError(t, err)
	require.NoError(t, k.Prepare(t.Context()))
	return k
}

func TestPrivateValuesOfSeveralPersonsAreEncryptedSeparately(t *testing.T) {
	t.Parallel()
	db, s := outboxtest.SQLite(t, outboxtest.File(t), sqlite.Config{})
	types := registry.New()
	require.NoError(t, registry.Register[message](types, "message",
		registry.Private(func(m message) string { return m.From }, "Sender"), registry.Private(func(m message) string { return m.To }, "Receiver")))
	require.NoError(t, registry.Register[*orderPlaced](types, "whole", registry.Private(func(o *orderPlaced) string { return o.OrderID })))
	k := newKeyring(t, s, nil)
	var written []notification.Envelope
	p, err := outbox.New(types, s, outbox.Config{Privacy: k, Published: func(all []notification.Envelope) { written = append(written, all...) }})
	require.NoError(t, err)
	m := message{"a", "b", "ada@example.com", "ben@example.com", "hello"}
	publish := func(n ...any) error {
		return p.RunInTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error { return p.Publish(ctx, tx, n...) })
	}
	require.NoError(t, publish(m, orderPlaced{OrderID: "o-1"}))
	require.Len(t, strings.Fields(written[0].Metadata[notification.MetadataPrivateKeys]), 2)
	require.Contains(t, string(written[0].Payload), "hello")
	require.NotContains(t, string(written[0].Payload), "example")
	require.NotContains(t, string(written[1].Payload), "o-1")

	reveal := func(e notification.Envelope) any {
		v := k.Views(t.Context(), []*notification.Envelope{&e}, sinks.PrivateReveal, false)[0]
		require.NoError(t, v.Err)
		n, err := types.Decode(v.Envelope)
		require.NoError(t, err)
		return n
	}
	require.Equal(t, m, reveal(written[0]))
	require.Equal(t, &orderPlaced{OrderID: "o-1"}, reveal(written[1]))
	of, err := k.Subject(t.Context(), "a")
	require.NoError(t, err)
	keys, err := s.PrivateKeysOf(t.Context(), of)
	require.NoError(t, err)
	_, err = s.ErasePrivateKeys(t.Context(), "", []string{keys[0].ID})
	require.NoError(t, err)
	m.Sender = ""
	require.Equal(t, m, reveal(written[0]), "the other person's value stays")

	written = nil
	require.NoError(t, p.RunInTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
		once := outbox.With(orderPlaced{OrderID: "o-2"}, outbox.Unique("o-2", time.Hour))
		require.ErrorIs(t, p.Publish(ctx, tx, once, message{From: "a", Receiver: "x"}), privacy.ErrSubject)
		return p.Publish(ctx, tx, once)
	}), "nothing was written, the uniqueness key neither")
	require.Len(t, written, 1)
}

func TestPrivateValuesAreNotPublishedInPlainText(t *testing.T) {
	t.Parallel()
	db, s := outboxtest.SQLite(t, outboxtest.File(t), sqlite.Config{})
	types := registry.New()
	p, err := outbox.New(types, s, outbox.Config{})
	require.NoError(t, err)
	require.NoError(t, registry.Register[message](types, "message", registry.Private(func(m message) string { return m.From }, "Sender")))
	_, err = outbox.New(types, s, outbox.Config{})
	require.ErrorIs(t, err, outbox.ErrPrivate)
	inTx := func(p *outbox.Publisher, do func(ctx context.Context, tx *sql.Tx) error) error {
		return p.RunInTx(t.Context(), db, nil, do)
	}
	require.ErrorIs(t, inTx(p, func(ctx context.Context, tx *sql.Tx) error { return p.Publish(ctx, tx, message{From: "a"}) }), outbox.ErrPrivate, "registered later")

	var written []notification.Envelope
	p, err = outbox.New(types, s, outbox.Config{Privacy: newKeyring(t, s, map[string]privacy.Rule{"raw": {Subject: "/id", Fields: []string{"/email"}}}), Published: func(all []notification.Envelope) { written = append(written, all...) }})
	require.NoError(t, err)
	appended := func(e notification.Envelope) error {
		return inTx(p, func(ctx context.Context, tx *sql.Tx) error { return p.Append(ctx, tx, e) })
	}
	require.ErrorIs(t, appended(notification.Envelope{Type: "message", Payload: []byte(`{"Sender":"x"}`)}), outbox.ErrPrivate)
	require.NoError(t, appended(notification.Envelope{Type: "raw", Payload: []byte(`{"id":1,"email":"ada@example.com"}`)}), "by its rule")
	require.NotContains(t, string(written[0].Payload), "ada")
	moved := written[0]
	require.NoError(t, appended(moved))
	require.Equal(t, moved.Payload, written[1].Payload, "what is encrypted already is moved as it is")
}
