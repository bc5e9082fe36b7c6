// Package waybilltest tests an application that publishes: what it has published, what its
// handlers do with a notification, and whether old payloads still decode.
//
//	o := waybilltest.New(t, types)
//	placeOrder(o.DB, o.Publisher) // the code under test
//	o.RequirePublished(OrderPlaced{ID: "o-17"})
//
// Drain delivers what was published, with a real forwarder. Advance also delivers what is
// scheduled or retrying, without waiting.
//
// The outboxes are real: New makes one in an SQLite file, and Of uses an existing one.
package waybilltest

import (
	"context"
	"database/sql"
	"encoding/base64"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// Outbox is an outbox under test. Its methods fail the test at once if something is wrong, so
// call them from the test's goroutine only.
type Outbox struct {
	// DB, Store and Publisher are set by New; Of leaves them nil.
	DB        *sql.DB
	Store     *sqlite.Store
	Publisher *outbox.Publisher
	// Privacy decrypts private values for RequirePublished and Published. New sets it, with a master key for
	// tests; set it as forwarder.Config.Privacy of a Drain. After Of, set that of the program.
	Privacy privacy.Config

	t         testing.TB
	log       store.Log
	types     *registry.Registry
	forgotten map[place]bool
}

// place identifies a row of the log: an id may be published twice.
type place struct {
	offset int64
	id     string
}

// New makes an empty outbox in an SQLite file, which is removed when the test ends.
func New(t testing.TB, types *registry.Registry) *Outbox {
	t.Helper()
	db, err := sqlite.OpenDB(filepath.Join(t.TempDir(), "outbox.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = sqlite.Migrate(t.Context(), db, sqlite.Config{})
	require.NoError(t, err)
	s, err := sqlite.Open(t.Context(), db, sqlite.Config{})
	require.NoError(t, err)
	master, err := privacy.LocalKeys(base64.StdEncoding.EncodeToString([]byte("the master key of all tests, ...")))
	require.NoError(t, err)
	private := privacy.Config{Master: master}
	keys, err := privacy.New(s, private)
	require.NoError(t, err)
	require.NoError(t, keys.Prepare(t.Context()))
	p, err := outbox.New(types, s, outbox.Config{Privacy: keys})
	require.NoError(t, err)
	o := Of(t, s, types)
	o.DB, o.Store, o.Publisher, o.Privacy = db, s, p, private
	return o
}

// Of returns the outbox of an existing store, such as one in a database of postgrestest. It
// ignores what is already in the log, so call it before the code under test.
func Of(t testing.TB, log store.Log, types *registry.Registry) *Outbox {
	t.Helper()
	require.NotNil(t, log, "the store is nil: take that of Outbox.Forwarding, after Outbox.Open")
	o := &Outbox{t: t, log: log, types: types, forgotten: make(map[place]bool)}
	o.Forget()
	return o
}

// Forget ignores what was published so far.
func (o *Outbox) Forget() {
	o.t.Helper()
	for _, e := range o.Envelopes() {
		o.forgotten[place{e.Offset, e.ID}] = true
	}
}

// Envelopes returns the committed envelopes since Forget, in log order.
func (o *Outbox) Envelopes() []notification.Envelope {
	o.t.Helper()
	target, err := o.log.Probe(o.t.Context())
	require.NoError(o.t, err)
	reader, err := o.log.NewReader(nil, store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes})
	require.NoError(o.t, err)
	var found []notification.Envelope
	for {
		page, err := reader.Next(o.t.Context(), target, 1000)
		require.NoError(o.t, err)
		for _, e := range page.Envelopes {
			if !o.forgotten[place{e.Offset, e.ID}] {
				found = append(found, e)
			}
		}
		if page.CaughtUp {
			return found
		}
	}
}

// revealed returns an envelope with its private values decrypted.
func (o *Outbox) revealed(e notification.Envelope) *notification.Envelope {
	o.t.Helper()
	if e.Metadata.Get(notification.MetadataPrivateKeys) == "" {
		return &e
	}
	in, keeps := o.log.(store.PrivateKeys)
	require.True(o.t, keeps, "the log keeps no keys of private values")
	keys, err := privacy.New(in, o.Privacy)
	require.NoError(o.t, err)
	v := keys.Views(o.t.Context(), []*notification.Envelope{&e}, sinks.PrivateReveal, false)[0]
	require.NoError(o.t, v.Err)
	return v.Envelope
}

// RequirePublished fails the test unless exactly these notifications were published since
// Forget, in this order. It compares them as they are decoded from the log.
func (o *Outbox) RequirePublished(want ...any) {
	o.t.Helper()
	envelopes := o.Envelopes()
	got := make([]any, len(envelopes))
	for i := range envelopes {
		var err error
		got[i], err = o.types.Decode(o.revealed(envelopes[i]))
		require.NoError(o.t, err)
	}
	if len(want) == 0 {
		want = []any{}
	}
	require.Equal(o.t, want, got, "what was published")
}

// RequireNothing fails the test if anything was published since Forget.
func (o *Outbox) RequireNothing() {
	o.t.Helper()
	o.RequirePublished()
}

// Published returns the notifications of type T that were published since Forget, in log order.
func Published[T any](o *Outbox) []T {
	o.t.Helper()
	name, err := registry.NameOf[T](o.types)
	require.NoError(o.t, err)
	var found []T
	for _, e := range o.Envelopes() {
		if e.Type != name {
			continue
		}
		n, err := registry.Decode[T](o.types, o.revealed(e))
		require.NoError(o.t, err)
		found = append(found, n)
	}
	return found
}

// Deliver hands a notification to a sink, as a forwarder does: serialized, so that the sink
// decodes it. It opens the sink first, and closes it when the test ends. Options are those of
// publishing, such as [outbox.ID]; without an ID each delivery gets a new id.
func Deliver(t testing.TB, types *registry.Registry, sink sinks.Sink, n any, options ...outbox.Option) (notification.Receipt, error) {
	t.Helper()
	e, err := types.Encode(n)
	require.NoError(t, err)
	e.ID, e.OccurredOn = notification.NewID(), time.Now().UTC().Truncate(time.Microsecond)
	for _, option := range options {
		option.Apply(e)
	}
	require.NoError(t, e.Validate())
	if opener, ok := sink.(sinks.Opener); ok {
		require.NoError(t, opener.Open(t.Context()))
	}
	if closer, ok := sink.(sinks.Closer); ok {
		t.Cleanup(func() { _ = closer.Close(context.Background()) })
	}
	return sink.Deliver(t.Context(), &notification.Delivery{Envelope: e, Sink: "test", Attempt: 1})
}
