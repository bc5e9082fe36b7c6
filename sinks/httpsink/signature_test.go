package httpsink

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
)

// The test vector that the libraries of Standard Webhooks publish.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTimestamp = 1614265330
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

// independentSignature computes a signature from the text of the standard,
// sharing no code with the sink.
func independentSignature(t *testing.T, secret, id, timestamp, body string) string {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	require.NoError(t, err)
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(id + "." + timestamp + "." + body))
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func TestTheIndependentSignatureMatchesThePublishedVector(t *testing.T) {
	assert.Equal(t, vectorSignature, independentSignature(t, vectorSecret, vectorID, "1614265330", vectorBody))
}

func TestARequestIsSignedAsThePublishedVector(t *testing.T) {
	for _, secret := range []string{vectorSecret, strings.TrimPrefix(vectorSecret, "whsec_")} {
		r := newReceiver(t)
		sink := r.sink(t, Config{Secret: secret})
		sink.now = func() time.Time { return time.Unix(vectorTimestamp, 999) }
		d := newDelivery()
		d.ID, d.Payload = vectorID, []byte(vectorBody)

		_, err := sink.Deliver(t.Context(), d)

		require.NoError(t, err)
		got := r.only(t)
		assert.Equal(t, vectorID, got.Header.Get("webhook-id"))
		assert.Equal(t, "1614265330", got.Header.Get("webhook-timestamp"))
		assert.Equal(t, vectorSignature, got.Header.Get("webhook-signature"))
	}
}

func TestEachAttemptIsSignedWithItsOwnTime(t *testing.T) {
	r := newReceiver(t)
	sink := r.sink(t, Config{Secret: vectorSecret})
	d := newDelivery()
	for _, at := range []int64{1700000000, 1700000060} {
		sink.now = func() time.Time { return time.Unix(at, 0) }
		_, err := sink.Deliver(t.Context(), d)
		require.NoError(t, err)
	}
	all := r.all()
	require.Len(t, all, 2)
	for i, at := range []string{"1700000000", "1700000060"} {
		assert.Equal(t, at, all[i].Header.Get("webhook-timestamp"))
		assert.Equal(t, independentSignature(t, vectorSecret, d.ID, at, string(d.Payload)), all[i].Header.Get("webhook-signature"))
	}
}

// A dot in the id would let two different (id, timestamp) pairs sign alike.
func TestADotInTheIDIsEncodedBeforeItIsSigned(t *testing.T) {
	r := newReceiver(t)
	sink := r.sink(t, Config{Secret: vectorSecret})
	d := newDelivery()
	d.ID = "order.42"

	_, err := sink.Deliver(t.Context(), d)

	require.NoError(t, err)
	got := r.only(t)
	assert.Equal(t, "order%2e42", got.Header.Get("webhook-id"))
	assert.Equal(t, "order.42", got.Header.Get(HeaderID))
	assert.Equal(t,
		independentSignature(t, vectorSecret, "order%2e42", got.Header.Get("webhook-timestamp"), string(d.Payload)),
		got.Header.Get("webhook-signature"))
}

func TestWithoutASecretNothingIsSigned(t *testing.T) {
	r := newReceiver(t)
	_, err := r.sink(t, Config{}).Deliver(t.Context(), newDelivery())
	require.NoError(t, err)
	for name := range r.only(t).Header {
		assert.False(t, strings.HasPrefix(name, "Webhook-"), name)
	}
}

func TestSecretsOutsideTheStandardAreRefused(t *testing.T) {
	for name, secret := range map[string]string{
		"not base64": "whsec_p@ssword",
		"too short":  "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23)),
		"too long":   "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65)),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(sinks.Instance{}, Config{URL: "https://partner.example", Secret: secret})
			require.ErrorContains(t, err, "secret: ")
			assert.ErrorContains(t, err, "openssl rand")
			assert.NotContains(t, err.Error(), strings.TrimPrefix(secret, secretPrefix))
		})
	}
}
