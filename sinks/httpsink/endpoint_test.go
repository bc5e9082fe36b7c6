package httpsink

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink/internal/signature"
)

func TestTheURLOfAnEndpointIsPublicAndEncrypted(t *testing.T) {
	for _, good := range []string{
		"https://partner.example", "HTTPS://Partner.example:8443/hooks?token=1", "https://8.8.8.8/", "https://[2606:4700::1111]/",
		"https://xn--mnchen-3ya.example/", "https://localhost.example", "https://redis", "https://1.example.",
	} {
		assert.NoError(t, ClientConfig{}.CheckURL(good), good)
	}
	for bad, want := range map[string]string{
		"":                                   "is missing; give the address for the requests, such as https://partner.example/hooks",
		"partner.example/hooks":              `scheme "" is not offered; start it with https://`,
		"http://partner.example":             `scheme "http" is not offered; start it with https://`,
		"ftp://partner.example":              `scheme "ftp" is not offered`,
		"https:///hooks":                     "has no host",
		"https://partner.example/#top":       "the fragment after # would not be sent; leave it out",
		"https://u:p4ssw0rd@partner.example": "use a header, such as Authorization",
		"https://u@partner.example":          "use a header, such as Authorization",
		"https://münchen.example":            "write an international name in its xn-- form",
		"https://partner..example":           "has an empty part",
		"https://partner.example/a/%2e%2e/b": `has ".." in its path, which leads elsewhere`,
		"https://partner.example:99999":      "port 99999 is above 65535",
		"https://partner.example/" + strings.Repeat("x", maxURL): "bytes long, the limit is 8192",
		"https://localhost":              `host "localhost" is this host, which the guard refuses; guard.allow makes exceptions`,
		"https://LocalHost.:8443/":       "is this host, which the guard refuses",
		"https://a.localhost":            "is this host, which the guard refuses",
		"https://localhost.localdomain":  "is this host, which the guard refuses",
		"https://127.0.0.1":              "127.0.0.1 is this host, which the guard refuses; guard.allow makes exceptions",
		"https://10.1.2.3":               "10.1.2.3 is a private network, which the guard refuses",
		"https://169.254.169.254/latest": "is a link-local network",
		"https://[::1]:8443":             "::1 is this host",
		"https://[::ffff:127.0.0.1]":     "is this host",
		"https://[fe80::1%25eth0]":       "is a link-local network",
		"https://[64:ff9b::10.0.0.1]":    "is a private network",
		"https://2130706433":             `host "2130706433" is neither a name nor an IP address; write the address like 192.0.2.1`,
		"https://0x7f000001":             "is neither a name nor an IP address",
		"https://127.1":                  "is neither a name nor an IP address",
		"https://0177.0.0.1":             "is neither a name nor an IP address",
		"https://127.0.0.1.":             "is neither a name nor an IP address",
	} {
		err := ClientConfig{}.CheckURL(bad)
		require.ErrorContains(t, err, want, bad)
		assert.NotContains(t, err.Error(), "p4ssw0rd")
	}
}

func TestTheSettingsOfAClientAllowMoreURLs(t *testing.T) {
	private := Guard{Allow: []string{"10.1.0.0/16", "127.0.0.0/8"}}
	for raw, allowing := range map[string]ClientConfig{
		"http://partner.example": {AllowHTTP: true},
		"https://10.1.2.3":       {Guard: private},
		"https://localhost":      {Guard: private},
		"https://192.168.0.1":    {Guard: Guard{Mode: GuardOff}},
		"https://2130706433":     {Guard: Guard{Mode: GuardOff}},
	} {
		require.Error(t, ClientConfig{}.CheckURL(raw), raw)
		require.NoError(t, allowing.CheckURL(raw), raw)
		require.NoError(t, newTestClient(t, withoutProxy(allowing)).CheckURL(raw), raw)
	}
	require.Error(t, ClientConfig{Guard: private}.CheckURL("https://10.2.0.1"))
}

func withoutProxy(c ClientConfig) ClientConfig {
	c.Proxy = noProxy
	return c
}

func TestTheHeadersOfAnEndpointAreChecked(t *testing.T) {
	require.NoError(t, CheckHeaders(nil))
	require.NoError(t, CheckHeaders(map[string]string{"Authorization": "Bearer x", "User-Agent": "shop/1", "X-Empty": ""}))
	headers := map[string]string{
		"bad name": "x", "waybill-id": "x", "Host": "x", "X-Line": "a\nb", "X-Twice": "a", "x-twice": "b", "Content-Type": "text/plain",
		"traceparent": "x", "Idempotency-Key": "x", "Webhook-Signature": "x", "Connection": "close", "X-Euro": "€",
	}
	err := CheckHeaders(headers)
	require.EqualError(t, err, strings.Join([]string{
		"headers.Connection: belongs to the connection and cannot be set",
		"headers.Content-Type: is that of the format",
		"headers.Host: comes from url",
		"headers.Idempotency-Key: is the notification's id",
		"headers.Webhook-Signature: is written by the sink; choose another name",
		"headers.X-Euro: the value is not printable ASCII without spaces around it; encode it as the receiver expects",
		"headers.X-Line: the value is not printable ASCII without spaces around it; encode it as the receiver expects",
		`headers."bad name": not a header name; use letters, digits and dashes`,
		"headers.traceparent: belongs to the notification and cannot be set",
		"headers.waybill-id: is written by the sink; choose another name",
		"headers.x-twice: is given twice, in different case",
	}, "\n"))

	_, err = New(sinks.Instance{}, Config{URL: "https://partner.example", Format: FormatEnvelope, Headers: headers})
	require.EqualError(t, err, CheckHeaders(headers).Error(), "the rules are those of a sink")
}

func TestTheSecretOfAnEndpointIsOneOfStandardWebhooks(t *testing.T) {
	encode := base64.StdEncoding.EncodeToString
	for _, good := range []string{vectorSecret, newSecret(), newPrivateKey(t), signature.SecretPrefix + encode(make([]byte, 64))} {
		require.NoError(t, CheckSecret(good))
	}
	for bad, want := range map[string]string{
		"":                                  "is empty; make one with: echo whsec_$(openssl rand -base64 32)",
		"whsec_p4ssw0rd!":                   "is not base64",
		"whsec_" + encode(make([]byte, 23)): "is 23 bytes long once decoded, outside 24..64",
		"whsec_" + encode(make([]byte, 65)): "is 65 bytes long once decoded",
		"whsk_" + encode(make([]byte, 31)):  "an ed25519 key has 32",
		"whpk_" + encode(make([]byte, 32)):  "is a public key, which is the receiver's",
	} {
		err := CheckSecret(bad)
		require.ErrorContains(t, err, want)
		_, all := ParseSecrets([]string{vectorSecret, bad, bad})
		require.EqualError(t, all, "secrets[1]: "+err.Error()+"\nsecrets[2]: "+err.Error())
		if bad != "" {
			assert.NotContains(t, all.Error(), bad[6:])
		}
	}
}

func FuzzAURLThatIsCheckedIsSafe(f *testing.F) {
	for _, seed := range []string{"https://partner.example/a", "https://127.0.0.1", "http://localhost", "https://u:p@h/#x", "https://[::1%25lo]/", "https://0x7f.1/"} {
		f.Add(seed)
	}
	rules := urlRules{[]string{"https"}, new(guard)}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := rules.parse(raw)
		if err != nil {
			return
		}
		require.Equal(t, "https", u.Scheme)
		require.Nil(t, u.User)
		require.NotEmpty(t, u.Hostname())
		require.NoError(t, rules.checkHost(u.Hostname()))
	})
}
