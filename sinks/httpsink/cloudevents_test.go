package httpsink

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/cloudevents"
	"github.com/waybill-go/waybill/sinks/internal/envelope"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

const source = "https://shop.example/orders"

// readEvents reads the events of a request with the CloudEvents SDK and validates them.
func readEvents(t *testing.T, r received) []event.Event {
	t.Helper()
	request := &http.Request{Header: r.Header, Body: io.NopCloser(strings.NewReader(r.Body))}
	if cehttp.IsHTTPBatch(r.Header) {
		events, err := cehttp.NewEventsFromHTTPRequest(request)
		require.NoError(t, err)
		for _, e := range events {
			require.NoError(t, e.Validate())
		}
		return events
	}
	e, err := binding.ToEvent(t.Context(), cehttp.NewMessageFromHttpRequest(request))
	require.NoError(t, err)
	require.NoError(t, e.Validate())
	return []event.Event{*e}
}

func newOrder() *notification.Delivery {
	return &notification.Delivery{
		Envelope: &notification.Envelope{
			ID:         "0198c0de-0000-7000-8000-000000000001",
			Type:       "order.placed",
			Version:    3,
			Key:        `Größe "7" 100%`,
			OccurredOn: time.Date(2025, 6, 1, 14, 30, 0, 123456789, time.FixedZone("", 7200)),
			Metadata: notification.Metadata{
				"content-type":   "application/json",
				"traceparent":    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
				"correlation-id": "c 1",
				"Tenant":         "größe",
			},
			Payload: []byte("{\"b\": 1.0,  \"a\": \"<&>€\"}\n"),
		},
		Attempt: 2,
	}
}

func TestCloudEventsReadByTheirSDK(t *testing.T) {
	for format, contentType := range map[string]string{
		FormatBinary:     "application/json",
		FormatStructured: "application/cloudevents+json",
		FormatBatch:      "application/cloudevents-batch+json",
	} {
		t.Run(format, func(t *testing.T) {
			r := newReceiver(t)
			d := newOrder()
			receipt, err := r.sink(t, Config{Format: format, Source: source, Metadata: everything}).Deliver(t.Context(), d)
			require.NoError(t, err)
			assert.Equal(t, notification.Receipt("http 202"), receipt)
			request := r.only(t)
			assert.Equal(t, contentType, request.Header.Get("Content-Type"))

			events := readEvents(t, request)

			require.Len(t, events, 1)
			e := events[0]
			assert.Equal(t, "1.0", e.SpecVersion())
			assert.Equal(t, d.ID, e.ID())
			assert.Equal(t, source, e.Source())
			assert.Equal(t, "order.placed", e.Type())
			assert.Equal(t, "application/json", e.DataContentType())
			assert.True(t, time.Date(2025, 6, 1, 12, 30, 0, 123456000, time.UTC).Equal(e.Time()), e.Time())
			want := map[string]any{
				"partitionkey": d.Key, "payloadversion": int32(3), "correlationid": "c 1", "tenant": "größe",
				"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			}
			if format == FormatBinary {
				want["payloadversion"] = "3" // headers are strings
			}
			got := e.Extensions()
			if format == FormatBinary {
				for name, value := range got { // the SDK does not decode headers
					text, err := url.PathUnescape(value.(string))
					require.NoError(t, err)
					got[name] = text
				}
			}
			assert.Equal(t, want, got)
			assert.JSONEq(t, string(d.Payload), string(e.Data()))
			assert.Contains(t, request.Body, strings.TrimSpace(string(d.Payload)), "the payload is unchanged, byte for byte")
		})
	}
}

func TestTheHeadersOfAnEvent(t *testing.T) {
	for format, want := range map[string][]string{
		FormatBinary: {"Ce-Correlationid", "Ce-Id", "Ce-Partitionkey", "Ce-Payloadversion", "Ce-Source", "Ce-Specversion", "Ce-Tenant", "Ce-Time",
			"Ce-Traceparent", "Ce-Type", "Content-Length", "Content-Type", "Idempotency-Key", "Traceparent", "User-Agent", "Waybill-Attempt"},
		FormatStructured: {"Content-Length", "Content-Type", "Idempotency-Key", "Traceparent", "User-Agent", "Waybill-Attempt"},
		FormatBatch:      {"Content-Length", "Content-Type", "Idempotency-Key", "User-Agent"},
	} {
		r := newReceiver(t)
		_, err := r.sink(t, Config{Format: format, Source: source, Metadata: everything}).Deliver(t.Context(), newOrder())
		require.NoError(t, err)
		assert.Equal(t, want, slices.Sorted(maps.Keys(r.only(t).Header)), format)
	}
}

func TestPayloadsOfEveryKindArriveUnchanged(t *testing.T) {
	for name, tt := range map[string]struct{ contentType, payload, member string }{
		"JSON":               {"application/json", `[1, "ä"]`, `"data":[1, "ä"]`},
		"JSON by its suffix": {"application/problem+json; charset=utf-8", `{}`, `"data":{}`},
		"JSON null":          {"application/json", `null`, `"data":null`},
		"broken JSON":        {"application/json", `{"a":`, `"data_base64":"eyJhIjo="`},
		"not UTF-8":          {"application/json", "\"\xff\"", `"data_base64":"Iv8i"`},
		"two values":         {"application/json", `{},{"id":1}`, `"data_base64":`},
		"Protobuf":           {"application/x-protobuf", "\x08\x01\xff", `"data_base64":"CAH/"`},
		"text":               {"text/plain", "ä", `"data_base64":"w6Q="`},
		"none":               {"application/json", "", ""},
		"an odd type":        {"no type at all", "{}", `"data_base64":"e30="`},
	} {
		for _, format := range []string{FormatBinary, FormatStructured, FormatBatch} {
			r := newReceiver(t)
			d := newOrder()
			d.Payload, d.Metadata["content-type"] = []byte(tt.payload), tt.contentType
			_, err := r.sink(t, Config{Format: format, Source: source}).Deliver(t.Context(), d)
			require.NoError(t, err, name)
			request := r.only(t)
			if format == FormatBinary {
				assert.Equal(t, tt.payload, request.Body, name)
				continue
			}
			require.True(t, json.Valid([]byte(request.Body)), request.Body)
			assert.Contains(t, request.Body, tt.member, name)
			switch {
			case tt.member == "":
				assert.NotContains(t, request.Body, `"data":`, name)
				assert.NotContains(t, request.Body, `"data_base64":`, name)
			case tt.contentType == "application/json", strings.Contains(tt.member, "data_base64"): // the SDK does not support +json
				assert.Equal(t, tt.payload, string(readEvents(t, request)[0].Data()), name)
			}
		}
	}
}

func TestABatchIsOneRequestInOrder(t *testing.T) {
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", "r-1")
		w.WriteHeader(202)
	})
	sink := r.sink(t, Config{Format: FormatBatch, Source: source, Secret: vectorSecret})
	var batch []*notification.Delivery
	for n := range 50 {
		batch = append(batch, sinktest.NewDelivery(n))
	}

	results := sink.DeliverBatch(t.Context(), batch)

	require.Len(t, results, len(batch))
	for _, result := range results {
		assert.Equal(t, sinks.Result{Receipt: "http 202 r-1"}, result)
	}
	request := r.only(t)
	verifySignature(t, vectorSecret, request)
	events := readEvents(t, request)
	require.Len(t, events, len(batch))
	for n, d := range batch {
		assert.Equal(t, d.ID, events[n].ID())
		assert.Equal(t, d.Key, events[n].Extensions()[cloudevents.ExtensionKey])
		assert.Equal(t, string(d.Payload), string(events[n].Data()))
	}
}

func TestATransientErrorFailsTheWholeBatch(t *testing.T) {
	batch := []*notification.Delivery{sinktest.NewDelivery(0), sinktest.NewDelivery(1)}
	for status, want := range map[int]sinks.Class{401: sinks.ClassUnavailable, 409: sinks.ClassTransient, 503: sinks.ClassTransient} {
		r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		results := r.sink(t, Config{Format: FormatBatch, Source: source}).DeliverBatch(t.Context(), batch)
		require.Len(t, results, 2)
		for _, result := range results {
			assert.Equal(t, want, sinktest.Class(result.Err))
		}
		r.only(t)
	}
	gone := newSink(t, Config{URL: "http://" + servertest.Unused, Format: FormatBatch, Source: source})
	for _, result := range gone.DeliverBatch(t.Context(), batch) {
		assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(result.Err))
	}
}

// A receiver may drop requests with an id that it already has.
func TestTheIDOfABatchDependsOnItsEvents(t *testing.T) {
	a, b, c := sinktest.NewDelivery(1), sinktest.NewDelivery(2), sinktest.NewDelivery(3)
	again := *a
	again.Attempt = 2
	batches := func(ds ...*notification.Delivery) string { return batchID(ds) }
	assert.Equal(t, batches(a, b), batches(&again, b))
	different := []string{batches(a), batches(a, b), batches(b, a), batches(a, b, c), batches(a, c)}
	slices.Sort(different)
	assert.Len(t, slices.Compact(different), 5)
	assert.Regexp(t, `^batch_[0-9a-f]{32}$`, batches(a))

	one, joined := sinktest.NewDelivery(1), sinktest.NewDelivery(1)
	one.ID, a.ID, b.ID = "12", "1", "2"
	joined.ID = "1:2"
	assert.NotEqual(t, batches(one), batches(a, b))
	assert.NotEqual(t, batches(joined), batches(a, b))
}

func TestOnlyTheBatchFormatHasBatches(t *testing.T) {
	limits := func(c Config) sinks.BatchLimits {
		c.URL = "https://partner.example"
		return newSink(t, c).BatchLimits()
	}
	assert.Zero(t, limits(Config{}))
	assert.Zero(t, limits(Config{Format: FormatStructured, Source: source}))
	assert.Equal(t, sinks.BatchLimits{Size: 100, Ordered: true}, limits(Config{Format: FormatBatch, Source: source}))
	assert.Equal(t, sinks.BatchLimits{Size: 7, Wait: time.Second, Ordered: true},
		limits(Config{Format: FormatBatch, Source: source, Batch: Batch{Size: 7, Wait: time.Second}}))
}

func TestMetadataBecomesLegalExtensions(t *testing.T) {
	got := make(map[string]string)
	for name, value := range cloudevents.Extensions(notification.Metadata{
		"content-type": "x", "correlation-id": "c", "Tenant": "T", "tenant": "t", "a_b.c": "abc", "größe": "g", "日本": "j", "-": "d",
		"id": "x", "S-o-u-r-c-e": "x", "data": "x", "data_base64": "x", "time": "x", "partition-key": "x", "payload-version": "x", "empty": "",
	}) {
		got[name] = value
	}
	assert.Equal(t, map[string]string{"correlationid": "c", "tenant": "T", "abc": "abc", "gre": "g", "database64": "x"}, got)
}

var legalExtension = regexp.MustCompile(`^[a-z0-9]+$`)

func FuzzEventsAreValid(f *testing.F) {
	for _, s := range hostileTexts {
		f.Add(s, s, []byte(s))
	}
	f.Add("data", `{"x":1}`, []byte(` {"a":"b"} `))
	f.Add("a", "\u0085\ufdd0\uffff\U0001ffff", []byte(`{}]`))
	sink, err := New(sinks.Instance{}, Config{URL: "https://partner.example", Format: FormatBatch, Source: source, Metadata: everything})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, name, text string, payload []byte) {
		d := newOrder()
		d.Type, d.ID, d.Key, d.Payload = "t"+text, "i"+text, text, payload
		d.Metadata = notification.Metadata{name: text, "x": "y"}

		body, n := sink.appendBatch(nil, []*notification.Delivery{d, d})

		var events []event.Event
		require.Equal(t, 2, n)
		require.NoError(t, json.Unmarshal(body, &events), "%s", body)
		require.True(t, utf8.Valid(body))
		require.Len(t, events, 2)
		require.Equal(t, cloudevents.Attribute(d.ID), events[0].ID())
		require.Equal(t, cloudevents.Attribute(d.Type), events[0].Type())
		for extension := range events[0].Extensions() {
			require.Regexp(t, legalExtension, extension)
		}
		if name != "content-type" || !envelope.IsJSON(text) || text == "application/json" { // the SDK does not support +json
			require.Equal(t, bytes.TrimSpace(payload), bytes.TrimSpace(events[0].Data()))
		}
		for header, values := range sink.eventHeader(d).header {
			require.True(t, isToken(header), header)
			require.True(t, isPlain(values[0]), "%q", values[0])
		}
	})
}

func TestEventsAreSigned(t *testing.T) {
	for _, format := range []string{FormatBinary, FormatStructured, FormatBatch} {
		r := newReceiver(t)
		_, err := r.sink(t, Config{Format: format, Source: source, Secret: vectorSecret}).Deliver(t.Context(), newOrder())
		require.NoError(t, err)
		verifySignature(t, vectorSecret, r.only(t))
	}
}

// control decodes the characters that cloudevents.Attribute encodes.
var control = strings.NewReplacer("%0D", "\r", "%0A", "\n", "%09", "\t")

func TestConformanceOfEveryFormat(t *testing.T) {
	for _, format := range []string{FormatBinary, FormatStructured, FormatBatch} {
		t.Run(format, func(t *testing.T) {
			var r *receiver
			sinktest.Run(t, sinktest.Subject{
				New: func(t *testing.T) sinks.Sink {
					r = newPicky(t, http.StatusUnprocessableEntity)
					sink, err := New(sinks.Instance{}, Config{URL: r.URL, Format: format, Source: source})
					require.NoError(t, err)
					return sink
				},
				Received: func(t *testing.T) (es []notification.Envelope) {
					for _, request := range r.all() {
						if request.refused() {
							continue
						}
						for _, e := range readEvents(t, request) {
							key, _ := e.Extensions()[cloudevents.ExtensionKey].(string) // absent if the key is empty
							if format == FormatBinary {
								var err error
								key, err = url.PathUnescape(key) // the SDK does not decode headers
								require.NoError(t, err)
							}
							key = control.Replace(key)
							es = append(es, notification.Envelope{
								ID: e.ID(), Type: e.Type(), Key: key, OccurredOn: e.Time().UTC(), Payload: e.Data(),
							})
						}
					}
					return es
				},
				Collected: func(t *testing.T) []sinktest.Collected { return r.collections(t) },
				Refused: func(n int) *notification.Delivery {
					d := sinktest.NewDelivery(n)
					d.Type = bad
					return d
				},
				Receipts: true,
			})
		})
	}
}
