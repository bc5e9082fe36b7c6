package httpsink

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink/internal/signature"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

// This is the test vector that the libraries of Standard Webhooks publish.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTimestamp = 1614265330
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

// independentSignature computes a signature as the standard describes it, without the sink's code.
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

func TestTheSignatureMatchesThePublishedVector(t *testing.T) {
	for _, secret := range []string{vectorSecret, strings.TrimPrefix(vectorSecret, "whsec_")} {
		r := newReceiver(t)
		sink := r.sink(t, Config{Format: FormatJSON, Secret: secret})
		sink.client.now = func() time.Time { return time.Unix(vectorTimestamp, 999) }
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
	sink := r.sink(t, Config{Format: FormatJSON, Secret: vectorSecret})
	d := newDelivery()
	for _, at := range []int64{1700000000, 1700000060} {
		sink.client.now = func() time.Time { return time.Unix(at, 0) }
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

// With a dot in the id, two different pairs of id and timestamp could have the same signature.
func TestADotInTheIDIsEncodedBeforeItIsSigned(t *testing.T) {
	r := newReceiver(t)
	sink := r.sink(t, Config{Format: FormatJSON, Secret: vectorSecret})
	d := newDelivery()
	d.ID = "order.42"

	_, err := sink.Deliver(t.Context(), d)

	require.NoError(t, err)
	got := r.only(t)
	assert.Equal(t, "order%2e42", got.Header.Get("webhook-id"))
	assert.Equal(t, "order.42", got.Header.Get(webhook.HeaderID))
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

// verifySignature verifies a request, including its time, with the library of the standard.
func verifySignature(t *testing.T, secret string, r received) {
	t.Helper()
	require.NoError(t, verify(secret, r))
}

func verify(secret string, r received) error {
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return err
	}
	return webhook.Verify([]byte(r.Body), r.Header)
}

// verifyAsymmetric verifies v1a as the standard describes it. The library does not support it.
func verifyAsymmetric(t *testing.T, public ed25519.PublicKey, r received) bool {
	t.Helper()
	content := r.Header.Get("webhook-id") + "." + r.Header.Get("webhook-timestamp") + "." + r.Body
	for _, signature := range strings.Split(r.Header.Get("webhook-signature"), " ") {
		if text, ok := strings.CutPrefix(signature, "v1a,"); ok {
			raw, err := base64.StdEncoding.DecodeString(text)
			require.NoError(t, err)
			if ed25519.Verify(public, []byte(content), raw) {
				return true
			}
		}
	}
	return false
}

func newSecret() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw)
	return signature.SecretPrefix + base64.StdEncoding.EncodeToString(raw)
}

func TestEverySecretSigns(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	other, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	now, old := newSecret(), newSecret()
	r := newReceiver(t)
	sink := r.sink(t, Config{Secret: now, Secrets: []string{old, signature.PrivateKeyPrefix + base64.StdEncoding.EncodeToString(private)}})
	var workers errgroup.Group
	for range 20 {
		workers.Go(func() error { _, err := sink.Deliver(t.Context(), newDelivery()); return err })
	}
	require.NoError(t, workers.Wait())
	for _, request := range r.all() {
		assert.Regexp(t, `^v1,\S{44} v1,\S{44} v1a,\S{88}$`, request.Header.Get("webhook-signature"))
		verifySignature(t, now, request)
		verifySignature(t, old, request)
		assert.True(t, verifyAsymmetric(t, public, request))
		assert.False(t, verifyAsymmetric(t, other, request))

		stranger, err := standardwebhooks.NewWebhook(newSecret())
		require.NoError(t, err)
		require.ErrorIs(t, stranger.Verify([]byte(request.Body), request.Header), standardwebhooks.ErrNoMatchingSignature)
	}
}

// RFC 8032, section 7.1, has the key pair of test 1.
func TestAPrivateKeyIsReadInBothForms(t *testing.T) {
	seed, err := hex.DecodeString("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
	require.NoError(t, err)
	public, err := hex.DecodeString("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
	require.NoError(t, err)
	for _, raw := range [][]byte{seed, append(bytes.Clone(seed), public...)} {
		r := newReceiver(t)
		_, err := r.sink(t, Config{Secrets: []string{signature.PrivateKeyPrefix + base64.StdEncoding.EncodeToString(raw)}}).Deliver(t.Context(), newDelivery())
		require.NoError(t, err)
		assert.True(t, verifyAsymmetric(t, public, r.only(t)))
	}
}

func TestInvalidPrivateKeysAreRefused(t *testing.T) {
	seed := bytes.Repeat([]byte{7}, 32)
	encode := base64.StdEncoding.EncodeToString
	for secret, want := range map[string]string{
		"whsk_p@ss":                             "is not base64 after whsk_",
		"whsk_" + encode(seed[:31]):             "is 31 bytes long once decoded; an ed25519 key has 32, or 64",
		"whsk_" + encode(append(seed, seed...)): "contains a public key that does not belong to the secret key",
		"whpk_" + encode(seed):                  "is a public key, which is the receiver's",
	} {
		_, err := New(sinks.Instance{}, Config{URL: "https://partner.example", Secrets: []string{vectorSecret, secret}})
		require.ErrorContains(t, err, "secrets[1]: "+want)
		assert.NotContains(t, err.Error(), secret[5:])
	}
}

func FuzzASecretIsReadOrRefused(f *testing.F) {
	for _, s := range []string{vectorSecret, "", "whsec_", "whsk_", "whsk_" + base64.StdEncoding.EncodeToString(make([]byte, 32)), "whpk_x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, secret string) {
		k, err := signature.Parse(secret)
		if err != nil {
			return
		}
		made := string(k.AppendSignature(nil, []byte("id.1."), []byte("body")))
		require.Regexp(t, `^v1a?,[A-Za-z0-9+/]+={0,2}$`, made)
		require.Equal(t, strings.HasPrefix(secret, signature.PrivateKeyPrefix), strings.HasPrefix(made, "v1a,"))
	})
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
			assert.NotContains(t, err.Error(), strings.TrimPrefix(secret, signature.SecretPrefix))
		})
	}
}

// With a shared secret, each receiver could forge requests to the others.
func TestReceiversDoNotShareASecret(t *testing.T) {
	plain := strings.TrimPrefix(vectorSecret, "whsec_")
	for name, c := range map[string]Config{
		"secret":     {Secret: vectorSecret},
		"secrets[1]": {Secrets: []string{newPrivateKey(t), vectorSecret}},
		"secrets[0]": {Secrets: []string{plain}},
	} {
		for _, url := range []string{"https://{{.Metadata.host}}/", "https://{{.Metadata.tenant}}.partner.example/hooks", "https://partner.example:{{.Version}}/"} {
			c.URL = url
			_, err := New(sinks.Instance{}, c)
			require.ErrorContains(t, err, name+": the host of url comes from data, so all receivers would share it, and each could forge requests to the others; use the kind webhooks for your customers, each with its own secret")
			assert.ErrorContains(t, err, signature.PrivateKeyPrefix)
			assert.ErrorContains(t, err, "a sink for each receiver")
			assert.NotContains(t, err.Error(), plain)
		}
	}
	for _, c := range []Config{
		{Secret: newPrivateKey(t), URL: "https://{{.Metadata.host}}/"},
		{Secret: vectorSecret, URL: "https://partner.example/{{.Metadata.tenant}}"},
	} {
		assert.NoError(t, c.Validate(), c.URL)
	}
}

func newPrivateKey(t *testing.T) string {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return signature.PrivateKeyPrefix + base64.StdEncoding.EncodeToString(private.Seed())
}
