package httpsink

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
)

func TestASignedRequestHasEverythingInItsBody(t *testing.T) {
	r := newReceiver(t)
	d := newOrder()
	d.Metadata["secret-note"] = "ada"

	_, err := r.sink(t, Config{Secret: vectorSecret, Metadata: []string{"correlation-id", "Tenant"}}).Deliver(t.Context(), d)

	require.NoError(t, err)
	got := r.only(t)
	assert.Equal(t, `{"id":"0198c0de-0000-7000-8000-000000000001","type":"order.placed","version":3,"key":"Größe \"7\" 100%",`+
		`"occurred_on":"2025-06-01T12:30:00.123456Z","metadata":{"Tenant":"größe","content-type":"application/json","correlation-id":"c 1",`+
		`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},"payload":{"b": 1.0,  "a": "<&>€"}}`, got.Body)
	verifySignature(t, vectorSecret, got)
	assert.Equal(t, "application/json", got.Header.Get("Content-Type"))
	assert.Equal(t, []string{"Content-Length", "Content-Type", "Idempotency-Key", "Traceparent", "User-Agent", "Waybill-Attempt",
		"Webhook-Id", "Webhook-Signature", "Webhook-Timestamp"}, slices.Sorted(maps.Keys(got.Header)))
}

func TestTheFormatOfSignedRequestsIsTheEnvelope(t *testing.T) {
	for want, configs := range map[string][]Config{
		FormatEnvelope: {{Secret: vectorSecret}, {Secrets: []string{vectorSecret}}, {Format: FormatEnvelope}},
		FormatJSON:     {{}, {Format: FormatJSON, Secret: vectorSecret}},
		FormatBinary:   {{Format: FormatBinary, Source: source, Secret: vectorSecret}},
	} {
		for _, c := range configs {
			c.URL = "https://partner.example"
			assert.Equal(t, want, newSink(t, c).format)
		}
	}
}

// The defaults are set before the secret is decoded, and again afterwards.
func TestTheFormatFollowsTheSecretOfYAML(t *testing.T) {
	built, err := build(t, `{url: "https://partner.example", secret: "`+vectorSecret+`"}`)
	require.NoError(t, err)
	assert.Equal(t, FormatEnvelope, built.(*Sink).format)
}

func TestAnEnvelopeLeavesOutEmptyFields(t *testing.T) {
	r := newReceiver(t)
	_, err := r.sink(t, Config{Format: FormatEnvelope}).Deliver(t.Context(), &notification.Delivery{
		Envelope: &notification.Envelope{ID: "1", Type: "t", Version: 1}, Attempt: 1,
	})
	require.NoError(t, err)
	assert.Equal(t, `{"id":"1","type":"t","version":1}`, r.only(t).Body)
}

func TestInAnEnvelopeAPayloadThatIsNotJSONIsBase64(t *testing.T) {
	for name, tt := range map[string]struct{ contentType, payload, member string }{
		"JSON null":           {"application/json", `null`, `"payload":null`},
		"JSON by its suffix":  {"application/problem+json", ` {} `, `"payload":{}`},
		"broken JSON":         {"application/json", `{"a":`, `"payload_base64":"eyJhIjo="`},
		"not UTF-8":           {"application/json", "\"\xff\"", `"payload_base64":"Iv8i"`},
		"more than one value": {"application/json", `{},"type":"x"`, `"payload_base64":`},
		"Protobuf":            {"application/x-protobuf", "\x08\x01\xff", `"payload_base64":"CAH/"`},
		"text":                {"text/plain", "1", `"payload_base64":"MQ=="`},
	} {
		r := newReceiver(t)
		d := newDelivery()
		d.OccurredOn = time.Now()
		d.Payload, d.Metadata["content-type"] = []byte(tt.payload), tt.contentType
		_, err := r.sink(t, Config{Secret: vectorSecret}).Deliver(t.Context(), d)
		require.NoError(t, err, name)
		body := r.only(t).Body
		require.True(t, json.Valid([]byte(body)), body)
		assert.Contains(t, body, tt.member, name)
	}
}
