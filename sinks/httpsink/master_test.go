package httpsink

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink/internal/signature"
)

// The secret comes from openssl: openssl kdf -keylen 32 -kdfopt digest:SHA256 -kdfopt key:…
// -kdfopt "info:waybill webhook secret v1 https://partner.example" -binary HKDF | base64
const (
	masterKey     = "abcdabcdabcdabcdabcdabcdabcdabcd"
	derivedSecret = "whsec_9+PtOviECOqf/TPotV2Rg/91NC5gjVXx3tYQHpE90Zg="
)

var masterSecret = base64.StdEncoding.EncodeToString([]byte(masterKey))

// independentSecret implements RFC 5869 for one block, without the sink's code.
func independentSecret(master, origin string) string {
	mac := func(key, content []byte) []byte {
		h := hmac.New(sha256.New, key)
		_, _ = h.Write(content)
		return h.Sum(nil)
	}
	raw, _ := base64.StdEncoding.DecodeString(master)
	extracted := mac(make([]byte, sha256.Size), raw)
	return "whsec_" + base64.StdEncoding.EncodeToString(mac(extracted, []byte("waybill webhook secret v1 "+origin+"\x01")))
}

func TestADerivedSecretIsTheSameAsInOpenSSL(t *testing.T) {
	got, err := DeriveSecret(masterSecret, "https://partner.example")
	require.NoError(t, err)
	assert.Equal(t, derivedSecret, got)
	assert.Equal(t, derivedSecret, independentSecret(masterSecret, "https://partner.example"))
}

func TestASecretIsDerivedFromSchemeHostAndPort(t *testing.T) {
	for url, origin := range map[string]string{
		"https://partner.example/hooks?a=b":      "https://partner.example",
		"HTTPS://Partner.EXAMPLE:443":            "https://partner.example",
		"https://user:password@partner.example/": "https://partner.example",
		"https://partner.example:0443":           "https://partner.example",
		"https://partner.example:":               "https://partner.example",
		"https://partner.example:80":             "https://partner.example:80",
		"http://partner.example:80/":             "http://partner.example",
		"http://partner.example:443":             "http://partner.example:443",
		"https://other.partner.example":          "https://other.partner.example",
		"https://[2001:DB8::1]:8443/":            "https://[2001:db8::1]:8443",
		"https://[2001:db8::1]:443/":             "https://[2001:db8::1]",
	} {
		got, err := DeriveSecret(masterSecret, url)
		require.NoError(t, err, url)
		assert.Equal(t, independentSecret(masterSecret, origin), got, url)
	}
}

func TestInvalidMasterSecretsAndURLsAreRefused(t *testing.T) {
	for want, c := range map[string]struct{ master, url string }{
		`master secret: has the prefix whsec_`:               {vectorSecret, "https://a.example"},
		`master secret: is not base64`:                       {"p@ss", "https://a.example"},
		`master secret: is 31 bytes long once decoded`:       {base64.StdEncoding.EncodeToString(make([]byte, 31)), "https://a.example"},
		`url: scheme "" is not offered`:                      {masterSecret, "a.example"},
		`url: cannot be parsed`:                              {masterSecret, "https://{{.Metadata.host}}/"},
		`url: is missing; give the address for the requests`: {masterSecret, ""},
	} {
		_, err := DeriveSecret(c.master, c.url)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "p@ss")
	}
}

// With a shared secret, each receiver could forge requests to the others.
func TestReceiversDoNotShareASecret(t *testing.T) {
	plain := strings.TrimPrefix(vectorSecret, "whsec_")
	for name, c := range map[string]Config{
		"secret":     {Secret: vectorSecret},
		"secrets[1]": {Secrets: []string{newPrivateKey(t), vectorSecret}},
		"secrets[0]": {Secrets: []string{plain}, MasterSecret: masterSecret},
	} {
		for _, url := range []string{"https://{{.Metadata.host}}/", "https://{{.Metadata.tenant}}.partner.example/hooks", "https://partner.example:{{.Version}}/"} {
			c.URL = url
			_, err := New(sinks.Instance{}, c)
			require.ErrorContains(t, err, name+": the host of url comes from data, so all receivers would share it, and each could forge requests to the others; use master_secret")
			assert.ErrorContains(t, err, signature.PrivateKeyPrefix)
			assert.ErrorContains(t, err, "a sink for each receiver")
			assert.NotContains(t, err.Error(), plain)
		}
	}
	for _, c := range []Config{
		{Secret: newPrivateKey(t), URL: "https://{{.Metadata.host}}/"},
		{MasterSecret: masterSecret, URL: "https://{{.Metadata.host}}/"},
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

func TestMasterSecretsAreChecked(t *testing.T) {
	c := Config{URL: "https://partner.example", MasterSecret: "p@ss", MasterSecrets: []string{masterSecret, vectorSecret}}
	err := c.Validate()
	require.ErrorContains(t, err, "master_secret: is not base64; make one with: openssl rand -base64 32")
	assert.ErrorContains(t, err, "master_secrets[1]: has the prefix whsec_")
	assert.NotContains(t, err.Error(), "p@ss")
}

func TestEachReceiverHasItsOwnSecret(t *testing.T) {
	one, other := newReceiver(t), newReceiver(t)
	next := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("n", 32)))
	for _, c := range []Config{
		{URL: "http://{{.Metadata.host}}:{{.Metadata.port}}/"},
		{URL: "http://{{.Metadata.host}}:{{.Metadata.port}}/", Format: FormatBinary, Source: source},
		{URL: "http://{{.Metadata.host}}:{{.Metadata.port}}/", Format: FormatStructured, Source: source},
	} {
		c.MasterSecret, c.MasterSecrets, c.Guard = masterSecret, []string{next}, Guard{Mode: GuardOff}
		sink := newSink(t, c)
		for _, r := range []*receiver{one, other} {
			r.forget()
			host, port, _ := strings.Cut(strings.TrimPrefix(r.URL, "http://"), ":")
			d := hosted(host)
			d.Metadata["port"] = port
			_, err := sink.Deliver(t.Context(), d)
			require.NoError(t, err)
		}
		for _, master := range []string{masterSecret, next} {
			mine, err := DeriveSecret(master, one.URL)
			require.NoError(t, err)
			verifySignature(t, mine, one.only(t))
			assert.Error(t, verify(mine, other.only(t)))
		}
	}
}

func TestAFixedHostHasADerivedSecretToo(t *testing.T) {
	r := newReceiver(t)
	for _, c := range []Config{{}, {URL: r.URL + "/{{.Type}}"}, batching(Config{})} {
		r.forget()
		c.MasterSecret, c.Secrets = masterSecret, []string{vectorSecret}
		_, err := r.sink(t, c).Deliver(t.Context(), newDelivery())
		require.NoError(t, err)
		derived, err := DeriveSecret(masterSecret, r.URL)
		require.NoError(t, err)
		verifySignature(t, derived, r.only(t))
		verifySignature(t, vectorSecret, r.only(t))
	}
}

func TestAMasterSecretIsNotRepeated(t *testing.T) {
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "debug: "+masterSecret, 400) })
	_, err := r.sink(t, Config{MasterSecret: masterSecret}).Deliver(t.Context(), newDelivery())
	require.ErrorContains(t, err, "debug: ***")
}
