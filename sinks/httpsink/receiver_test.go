package httpsink

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink/internal/signature"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

// requestOf returns the request of a delivery, as a server receives it.
func requestOf(t testing.TB, c Config, d *notification.Delivery) *http.Request {
	t.Helper()
	c.URL = "https://partner.example/hooks"
	sink, err := New(sinks.Instance{}, c)
	require.NoError(t, err)
	return sink.client.attempt(t.Context(), sink.request(d, sink.destination.fixed))
}

func (r received) again() *http.Request {
	return &http.Request{Header: r.Header, Body: io.NopCloser(strings.NewReader(r.Body))}
}

// withBody returns the request with another body.
func withBody(r *http.Request, body string) *http.Request {
	r.Body = io.NopCloser(strings.NewReader(body))
	return r
}

func describedOrder() *notification.Delivery {
	d := newOrder()
	d.OccurredOn = d.OccurredOn.UTC().Truncate(time.Microsecond)
	d.Payload = bytes.TrimSpace(d.Payload)
	delete(d.Metadata, "Tenant")
	d.Metadata["tenant"], d.Metadata["grÖße"], d.Metadata["tracestate"] = " größe ", "10 €", "vendor=50%"
	return d
}

func TestAReceiverGetsThePublishedEnvelope(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	privateKey := signature.PrivateKeyPrefix + base64.StdEncoding.EncodeToString(private.Seed())
	publicKey := signature.PublicKeyPrefix + base64.StdEncoding.EncodeToString(public)
	d := describedOrder()
	for name, tt := range map[string]struct {
		sender  Config
		secrets []string
	}{
		"symmetric":     {Config{Secret: vectorSecret}, []string{vectorSecret}},
		"plain":         {Config{Secret: vectorSecret}, []string{strings.TrimPrefix(vectorSecret, signature.SecretPrefix)}},
		"ed25519":       {Config{Secret: privateKey}, []string{publicKey}},
		"sender's next": {Config{Secrets: []string{newSecret(), privateKey, vectorSecret}}, []string{vectorSecret}},
		"either":        {Config{Secret: privateKey}, []string{newSecret(), publicKey}},
	} {
		t.Run(name, func(t *testing.T) {
			c := tt.sender
			c.Metadata = everything
			got, err := webhook.Envelope(requestOf(t, c, d), tt.secrets...)
			require.NoError(t, err)
			assert.Equal(t, d.Envelope, got)
		})
	}
}

func TestAReceiverRefusesUnsignedRequests(t *testing.T) {
	sender := Config{Secret: vectorSecret}
	other, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		change  func(*http.Request)
		secrets []string
	}{
		"another secret":     {func(*http.Request) {}, []string{newSecret()}},
		"another public key": {func(*http.Request) {}, []string{signature.PublicKeyPrefix + base64.StdEncoding.EncodeToString(other)}},
		"no signature":       {func(r *http.Request) { r.Header.Del(webhook.HeaderWebhookSignature) }, nil},
		"no time":            {func(r *http.Request) { r.Header.Del(webhook.HeaderWebhookTimestamp) }, nil},
		"an invalid time":    {func(r *http.Request) { r.Header.Set(webhook.HeaderWebhookTimestamp, "now") }, nil},
		"a very early time":  {func(r *http.Request) { r.Header.Set(webhook.HeaderWebhookTimestamp, "-9223372036854775808") }, nil},
		"another time":       {func(r *http.Request) { r.Header.Set(webhook.HeaderWebhookTimestamp, fmt.Sprint(time.Now().Unix()+1)) }, nil},
		"another id":         {func(r *http.Request) { r.Header.Set(webhook.HeaderWebhookID, "x") }, nil},
		"another body":       {func(r *http.Request) { withBody(r, `{"id":"1","type":"t","version":1}`) }, nil},
		"too many of them": {func(r *http.Request) {
			r.Header.Set(webhook.HeaderWebhookSignature, strings.Repeat("v1,x ", 32)+r.Header.Get(webhook.HeaderWebhookSignature))
		}, nil},
	} {
		secrets := tt.secrets
		if secrets == nil {
			secrets = []string{vectorSecret}
		}
		r := requestOf(t, sender, newOrder())
		tt.change(r)
		_, err := webhook.Envelope(r, secrets...)
		require.ErrorIs(t, err, webhook.ErrSignature, name)
	}
}

func TestAReceiverRefusesOldRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		receive := func(after time.Duration) error {
			r := requestOf(t, Config{Secret: vectorSecret}, newOrder())
			time.Sleep(after)
			_, err := webhook.Envelope(r, vectorSecret)
			return err
		}
		require.NoError(t, receive(5*time.Minute))
		require.ErrorIs(t, receive(5*time.Minute+time.Second), webhook.ErrSignature)
	})
}

func TestTheSecretsOfAReceiverAreChecked(t *testing.T) {
	for want, secrets := range map[string][]string{
		"needs at least one secret":       nil,
		"secret 2: is 0 bytes long":       {vectorSecret, ""},
		"secret 1: is not base64":         {"whsec_p@ss"},
		"is the sender's private key":     {newPrivateKey(t)},
		"is not base64 of 32 bytes after": {"whpk_MTIz"},
	} {
		_, err := webhook.Envelope(requestOf(t, Config{Secret: vectorSecret}, newOrder()), secrets...)
		require.ErrorContains(t, err, want)
		assert.NotErrorIs(t, err, webhook.ErrSignature)
		assert.NotContains(t, err.Error(), "p@ss")
	}
}

func TestTheBodyOfARequestIsLimited(t *testing.T) {
	d := newOrder()
	d.Payload = fmt.Appendf(nil, "%q", strings.Repeat("x", webhook.DefaultMaxRequestBytes))
	var tooLarge *http.MaxBytesError
	_, err := webhook.Envelope(requestOf(t, Config{Secret: vectorSecret}, d), vectorSecret)
	require.ErrorAs(t, err, &tooLarge)
	assert.Equal(t, int64(webhook.DefaultMaxRequestBytes), tooLarge.Limit)

	got, err := webhook.Receiver{Secrets: []string{vectorSecret}, MaxBytes: 4 << 20}.Envelope(requestOf(t, Config{Secret: vectorSecret}, d))
	require.NoError(t, err)
	assert.Equal(t, d.Payload, got.Payload)
}

// Headers are not signed, so they must not determine how a request is read.
func TestHeadersDoNotChangeAnEnvelope(t *testing.T) {
	d := describedOrder()
	r := requestOf(t, Config{Secret: vectorSecret, Metadata: everything}, d)
	for name, value := range map[string]string{
		webhook.HeaderID: "x", webhook.HeaderType: "account.closed", webhook.HeaderVersion: "9", webhook.HeaderKey: "x", "Waybill-Meta-Tenant": "x",
		"Content-Type": "application/cloudevents+json", "Traceparent": "x",
	} {
		r.Header.Set(name, value)
	}
	got, err := webhook.Envelope(r, vectorSecret)
	require.NoError(t, err)
	assert.Equal(t, d.Envelope, got)
}

// If it were, the author of a payload could forge a notification.
func TestASignedPayloadIsNotTakenForAnEnvelope(t *testing.T) {
	d := newOrder()
	d.Payload = []byte(`{"id":"1","type":"account.closed","version":1}`)
	_, err := webhook.Envelope(requestOf(t, Config{Format: FormatJSON, Secret: vectorSecret}, d), vectorSecret)
	require.ErrorIs(t, err, webhook.ErrEnvelope)
	assert.ErrorContains(t, err, "is not the signed id")
}

func TestASignedRequestThatIsNotAnEnvelopeIsAnError(t *testing.T) {
	for payload, want := range map[string]string{
		"not JSON":              "invalid character",
		`[]`:                    "cannot unmarshal",
		`{"id":"1"}`:            "type name is empty",
		`{"id":"1","type":"t"}`: "version 0 is outside",
	} {
		d := newOrder()
		d.ID, d.Payload = "1", []byte(payload)
		_, err := webhook.Envelope(requestOf(t, Config{Format: FormatJSON, Secret: vectorSecret}, d), vectorSecret)
		require.ErrorIs(t, err, webhook.ErrEnvelope, payload)
		assert.ErrorContains(t, err, want)
	}
}

func FuzzAnEnvelopeArrivesUnchanged(f *testing.F) {
	for _, s := range hostileTexts {
		f.Add(s, s, []byte(s))
	}
	f.Add("content-type", "text/plain", []byte("1"))
	f.Add("payload", `","type":"x`, []byte(`{"a":[1.0, null]}`))
	f.Fuzz(func(t *testing.T, name, text string, payload []byte) {
		d := newOrder()
		d.OccurredOn = d.OccurredOn.UTC().Truncate(time.Microsecond)
		d.ID, d.Key, d.Payload = "i"+text, text, payload
		d.Metadata = notification.Metadata{name: text, "x": "y"}
		if d.Validate() != nil {
			return
		}
		got, err := webhook.Envelope(requestOf(t, Config{Secret: vectorSecret, Metadata: everything}, d), vectorSecret)
		require.NoError(t, err)
		require.Equal(t, bytes.TrimSpace(d.Payload), bytes.TrimSpace(got.Payload))
		got.Payload = d.Payload
		require.Equal(t, d.Envelope, got)
	})
}

func FuzzAReceiverNeverPanics(f *testing.F) {
	f.Add("id", `{"id":"id","type":"t","version":1,"payload":null}`)
	f.Fuzz(func(t *testing.T, id, body string) {
		r := &http.Request{Header: http.Header{
			webhook.HeaderWebhookID: {id}, webhook.HeaderWebhookTimestamp: {fmt.Sprint(time.Now().Unix())},
		}}
		r.Header.Set(webhook.HeaderWebhookSignature, independentSignature(t, vectorSecret, id, r.Header.Get(webhook.HeaderWebhookTimestamp), body))
		if e, err := webhook.Envelope(withBody(r, body), vectorSecret); err == nil {
			require.NoError(t, e.Validate())
		} else {
			require.ErrorIs(t, err, webhook.ErrEnvelope)
		}
	})
}
