package httpsink

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
	"github.com/waybill-go/waybill/sinks/internal/cloudevents"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// collections returns the collections that the receiver has accepted, as a receiver reads them.
func (r *receiver) collections(t *testing.T) (all []sinktest.Collected) {
	for _, request := range r.all() {
		c := sinktest.Collected{ID: request.Header.Get(webhook.HeaderIdempotencyKey), Raw: []byte(request.Body)}
		switch {
		case request.Header.Get("Content-Type") == contentTypeEventBatch:
			if request.refused() {
				continue
			}
			for _, e := range readEvents(t, request) {
				key, _ := e.Extensions()[cloudevents.ExtensionKey].(string)
				c.Members = append(c.Members, notification.Envelope{ID: e.ID(), Type: e.Type(), Key: key, OccurredOn: e.Time().UTC(), Payload: e.Data()})
			}
		case request.Header.Get(webhook.HeaderID) != "":
			var payloads []json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(request.Body), &payloads))
			for _, payload := range payloads {
				c.Members = append(c.Members, notification.Envelope{Payload: payload})
			}
		default:
			read, err := webhook.Collection(request.again(), vectorSecret)
			require.NoError(t, err)
			assert.Equal(t, c.ID, read.ID)
			for _, d := range read.Members {
				c.Members = append(c.Members, *d.Envelope)
			}
		}
		all = append(all, c)
	}
	return all
}

func newCollection(members ...*notification.Delivery) *sinks.Collection {
	return &sinks.Collection{Sink: "partner", ID: "0198c0de-0000-7000-8000-00000000000c", Group: "größe", Attempt: 3, Members: members}
}

func twoOrders() []*notification.Delivery {
	one, other := newOrder(), newOrder()
	one.Payload, other.Payload = []byte("{\"n\":1}\n"), []byte(`{"n":2}`)
	other.ID = "0198c0de-0000-7000-8000-000000000002"
	return []*notification.Delivery{one, other}
}

func TestACollectionIsOneRequest(t *testing.T) {
	for format, want := range map[string]struct {
		media, body string
		header      http.Header
	}{
		FormatEnvelope: {defaultContentType, `{"id":"0198c0de-0000-7000-8000-00000000000c","group":"größe","items":[` +
			`{"id":"0198c0de-0000-7000-8000-000000000001","type":"order.placed","version":3,"key":"Größe \"7\" 100%","occurred_on":"2025-06-01T12:30:00.123456Z","metadata":{"content-type":"application/json"},"payload":{"n":1}},` +
			`{"id":"0198c0de-0000-7000-8000-000000000002","type":"order.placed","version":3,"key":"Größe \"7\" 100%","occurred_on":"2025-06-01T12:30:00.123456Z","metadata":{"content-type":"application/json"},"payload":{"n":2}}]}`, nil},
		FormatJSON: {defaultContentType, `[{"n":1},{"n":2}]`, http.Header{
			webhook.HeaderID: {"0198c0de-0000-7000-8000-00000000000c"}, webhook.HeaderGroup: {"gr%c3%b6%c3%9fe"},
			webhook.HeaderType: {"order.placed"}, webhook.HeaderVersion: {"3"},
		}},
		FormatBinary:     {contentTypeEventBatch, "", nil},
		FormatStructured: {contentTypeEventBatch, "", nil},
		FormatBatch:      {contentTypeEventBatch, "", nil},
	} {
		t.Run(format, func(t *testing.T) {
			r := newReceiver(t)
			c := Config{Format: format, Secret: vectorSecret}
			if isEvents(format) {
				c.Source = source
			}
			if format == FormatBatch {
				c.Batch.MaxBytes = minBatchBytes // is for batches only
			}
			members := twoOrders()
			for _, d := range members {
				delete(d.Metadata, notification.MetadataTraceparent)
			}
			if format == FormatBatch {
				members[0].Payload = []byte(`"` + strings.Repeat("x", 2*minBatchBytes) + `"`)
			}
			receipt, err := r.sink(t, c).DeliverCollection(t.Context(), newCollection(members...))

			require.NoError(t, err)
			assert.Equal(t, notification.Receipt("http 202"), receipt)
			got := r.only(t)
			if want.body != "" {
				assert.Equal(t, want.body, got.Body)
			} else {
				assert.Len(t, readEvents(t, got), 2)
			}
			assert.Equal(t, want.media, got.Header.Get("Content-Type"))
			assert.Equal(t, "3", got.Header.Get(webhook.HeaderAttempt))
			for _, name := range []string{webhook.HeaderIdempotencyKey, webhook.HeaderWebhookID} {
				assert.Equal(t, "0198c0de-0000-7000-8000-00000000000c", got.Header.Get(name))
			}
			for name, values := range want.header {
				assert.Equal(t, values, got.Header[name])
			}
			verifySignature(t, vectorSecret, got)
		})
	}
}

func TestInTheFormatJSONACollectionHasTheHeadersThatAllMembersShare(t *testing.T) {
	r := newReceiver(t)
	sink := r.sink(t, Config{Metadata: everything, Headers: map[string]string{"X-Shop": "1"}})
	members := twoOrders()
	members[1].Type, members[1].Metadata = "order.paid", members[1].Metadata.Clone()
	members[1].Metadata["correlation-id"] = "c 2"
	_, err := sink.DeliverCollection(t.Context(), newCollection(members...))
	require.NoError(t, err)
	got := r.only(t).Header
	assert.Equal(t, []string{"gr%c3%b6%c3%9fe"}, got[metaHeader("Tenant")])
	assert.Equal(t, "1", got.Get("X-Shop"))
	for _, name := range []string{webhook.HeaderType, metaHeader("correlation-id"), headerTraceparent} {
		assert.NotContains(t, got, name)
	}
}

func TestAPayloadThatIsNotJSONCannotBeInAnArray(t *testing.T) {
	r := newReceiver(t)
	members := twoOrders()
	members[1].Payload = []byte("<xml/>")
	_, err := r.sink(t, Config{}).DeliverCollection(t.Context(), newCollection(members...))
	requireClass(t, sinks.ClassInvalid, err)
	require.ErrorContains(t, err, members[1].ID)
	require.ErrorContains(t, err, "format: envelope")
	assert.Empty(t, r.all())
}

func TestACollectionGoesToOneURL(t *testing.T) {
	r := newReceiver(t)
	sink := r.sink(t, Config{URL: r.URL + "/{{.Metadata.Tenant}}"})
	members := twoOrders()
	_, err := sink.DeliverCollection(t.Context(), newCollection(members...))
	require.NoError(t, err)
	assert.Equal(t, "/gr%C3%B6%C3%9Fe", r.only(t).RequestURI)

	members[1].Metadata = notification.Metadata{"Tenant": "other"}
	_, err = sink.DeliverCollection(t.Context(), newCollection(members...))
	requireClass(t, sinks.ClassInvalid, err)
	differ := new(sinks.DifferError)
	require.ErrorAs(t, err, &differ)
	assert.Equal(t, &sinks.DifferError{Setting: "url", One: members[0].ID, Other: members[1].ID}, differ)
	assert.NotContains(t, err.Error(), "other", "a URL may be secret")

	members[1].Metadata = nil
	_, err = sink.DeliverCollection(t.Context(), newCollection(members...))
	requireClass(t, sinks.ClassInvalid, err)
	assert.Len(t, r.all(), 1)
}

func TestAReceiverPassesACollectionOnAsOne(t *testing.T) {
	types := registry.New()
	require.NoError(t, registry.Register[renamed](types, "order.placed"))
	var got []*sinks.Collection
	fail := error(nil)
	sink, _ := receive(t, function.Mux(types, function.OnCollection(func(_ context.Context, c *sinks.Collection, _ []renamed) error {
		got = append(got, c)
		return fail
	})))
	sent := newCollection(twoOrders()...)
	for _, d := range sent.Members {
		d.Version = 1
	}
	_, err := sink.DeliverCollection(t.Context(), sent)
	require.NoError(t, err)
	require.Len(t, got, 1)
	assert.Equal(t, sent.ID, got[0].ID)
	assert.Equal(t, sent.Group, got[0].Group)
	assert.Equal(t, sent.Attempt, got[0].Attempt)
	assert.Equal(t, []string{sent.Members[0].ID, sent.Members[1].ID}, []string{got[0].Members[0].ID, got[0].Members[1].ID})

	fail = sinks.Permanent(errors.New("no"))
	_, err = sink.DeliverCollection(t.Context(), sent)
	requireClass(t, sinks.ClassPermanent, err)
}

func TestAReceiverRefusesACollectionForASinkThatTakesNone(t *testing.T) {
	sink, log := receive(t, sinks.Func(func(context.Context, *notification.Delivery) (notification.Receipt, error) { return "", nil }))
	_, err := sink.DeliverCollection(t.Context(), newCollection(twoOrders()...))
	requireClass(t, sinks.ClassPermanent, err)
	assert.Contains(t, log.String(), "the sink takes none")
}

func TestAReceiverRefusesWhatIsNoCollection(t *testing.T) {
	one, err := webhook.Collection(requestOf(t, Config{Secret: vectorSecret}, newOrder()), vectorSecret)
	require.ErrorIs(t, err, webhook.ErrEnvelope)
	assert.Nil(t, one)

	r := newReceiver(t)
	sink := r.sink(t, Config{Secret: vectorSecret})
	for _, spoil := range []func(*sinks.Collection){
		func(c *sinks.Collection) { c.Group = "" },
		func(c *sinks.Collection) { c.Members[1].Type = "" },
	} {
		c := newCollection(twoOrders()...)
		spoil(c)
		_, err := sink.DeliverCollection(t.Context(), c)
		require.NoError(t, err)
	}
	for _, request := range r.all() {
		_, err := webhook.Collection(request.again(), vectorSecret)
		require.ErrorIs(t, err, webhook.ErrEnvelope)
		_, err = webhook.Envelope(request.again(), vectorSecret)
		require.ErrorIs(t, err, webhook.ErrEnvelope, "a collection is not an envelope")
	}
}
