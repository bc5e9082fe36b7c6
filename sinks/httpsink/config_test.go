package httpsink

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/sinks"
)

func build(t *testing.T, config string) (sinks.Sink, error) {
	t.Helper()
	return Kind().Build(sinks.Instance{Name: "partner"}, func(c any) error {
		return yaml.Unmarshal([]byte(config), c)
	})
}

func TestASinkIsBuiltFromYAML(t *testing.T) {
	built, err := build(t, `
url: "https://partner.example/hooks"
method: PUT
headers: {X-Shop: "1"}
bearer: token
secret: "`+vectorSecret+`"
timeout: 3s
`)
	require.NoError(t, err)
	sink := built.(*Sink)
	assert.Equal(t, "PUT https://partner.example", sink.destination.fixed.target)
	assert.Equal(t, 3*time.Second, sink.client.timeout)
	assert.Len(t, sink.keys, 1)
}

func TestOnlyTheURLIsRequired(t *testing.T) {
	built, err := build(t, `url: "http://partner.example"`)
	require.NoError(t, err)
	sink := built.(*Sink)
	assert.Equal(t, "POST http://partner.example", sink.destination.fixed.target)
	assert.Equal(t, DefaultTimeout, sink.client.timeout)
	assert.Empty(t, sink.keys)
}

func TestAllMistakesAreReportedAtOnce(t *testing.T) {
	_, err := build(t, `
url: "ftp://partner.example"
method: GET
headers: {"bad name": x, Waybill-Id: x, Host: x, X-Line: "a\nb", X-Twice: a, x-twice: b, Authorization: abc}
bearer: "two words"
secret: short
timeout: -1s
max_connection_age: -1s
tls: {ca_file: /does/not/exist.pem}
`)
	require.Error(t, err)
	for _, want := range []string{
		`method: "GET" is not offered; use POST or PUT`,
		`timeout: -1s is negative`,
		`url: scheme "ftp" is not offered; start it with https:// or http://`,
		`headers."bad name": not a header name`,
		`headers.Waybill-Id: is written by the sink`,
		`headers.Host: comes from url`,
		`headers.X-Line: the value is not printable ASCII`,
		`headers.x-twice: is given twice`,
		`bearer: the token contains spaces`,
		`headers.Authorization, bearer: each sets the Authorization header; keep one`,
		`secret: is not base64`,
		`tls.ca_file: open /does/not/exist.pem`,
	} {
		assert.ErrorContains(t, err, want)
	}
	assert.Len(t, strings.Split(err.Error(), "\n"), 12)
}

func TestInvalidURLsAreRefused(t *testing.T) {
	for raw, want := range map[string]string{
		"":                              "is missing",
		"partner.example/hooks":         `scheme "" is not offered`,
		"HTTPS:partner.example":         "has no host",
		"https://":                      "has no host",
		"https:///hooks":                "has no host",
		"https://partner.example:99999": "port 99999 is above 65535",
		"https://partner.example:https": "cannot be parsed",
		"https://münchen.example":       "xn--",
		"https://partner.example/#top":  "the fragment after # would not be sent",
		"https://part ner.example":      "cannot be parsed",
		"https://u:pass/word@host":      "percent-encode special characters of user and password",
	} {
		_, err := New(sinks.Instance{}, Config{URL: raw})
		require.ErrorContains(t, err, "url: ", raw)
		assert.ErrorContains(t, err, want, raw)
		assert.NotContains(t, err.Error(), "pass/")
	}
}

func TestEverySettingIsChecked(t *testing.T) {
	for want, c := range map[string]Config{
		`format: "xml" is not offered; use envelope, json, cloudevents-binary`: {Format: "xml"},
		`source: is missing`:                                                                {Format: FormatBinary},
		`source: is for the cloudevents formats`:                                            {Source: "/shop"},
		`source: "a b" is not a URI`:                                                        {Format: FormatBinary, Source: "a b"},
		`source: contains a user`:                                                           {Format: FormatBinary, Source: "//u:p@a/"},
		`batch: is for format cloudevents-batch, but format is json`:                        {Batch: Batch{Size: 5}},
		`batch.size: 1 is outside 2..10000`:                                                 {Format: FormatBatch, Source: source, Batch: Batch{Size: 1}},
		`batch.wait: 1h0m0s is outside 0s..1m0s`:                                            {Format: FormatBatch, Source: source, Batch: Batch{Wait: time.Hour}},
		`batch.max_bytes: 100 is outside 1024..67108864`:                                    {Format: FormatBatch, Source: source, Batch: Batch{MaxBytes: 100}},
		`batch.max_bytes: 67108865 is outside`:                                              {Format: FormatBatch, Source: source, Batch: Batch{MaxBytes: 64<<20 + 1}},
		`url: is a template, but a batch goes to one URL`:                                   {Format: FormatBatch, Source: source, URL: "https://a.example/{{.Type}}"},
		`headers.ce-id: belongs to the event`:                                               {Format: FormatBinary, Source: source, Headers: map[string]string{"ce-id": "1"}},
		`user: is missing, but password is set`:                                             {Password: "p"},
		`user: contains a colon`:                                                            {User: "a:b"},
		`user, bearer: each sets the Authorization header; keep one`:                        {User: "a", Bearer: "b"},
		`guard.mode: "maybe" is not offered; use auto, on or off`:                           {Guard: Guard{Mode: "maybe"}},
		`guard.allow[1]: "10.0.0.1" is not a network`:                                       {Guard: Guard{Allow: []string{"10.0.0.0/8", "10.0.0.1"}}},
		`guard.allow[0]: 10.0.0.1/8 has bits set after its length; do you mean 10.0.0.0/8?`: {Guard: Guard{Allow: []string{"10.0.0.1/8"}}},
		`guard.allow[0]: ::ffff:10.0.0.0/104 is an IPv4 network written as IPv6`:            {Guard: Guard{Allow: []string{"::ffff:10.0.0.0/104"}}},
		`guard.allow: has exceptions for a guard that is off`:                               {Guard: Guard{Mode: "off", Allow: []string{"10.0.0.0/8"}}},
	} {
		if c.URL == "" {
			c.URL = "https://partner.example"
		}
		assert.ErrorContains(t, c.Validate(), want)
	}
}

func TestAllSettingsFromYAML(t *testing.T) {
	built, err := build(t, `
url: "https://partner.example/events"
format: cloudevents-batch
source: /shop
batch: {size: 20, wait: 50ms, max_bytes: 65536}
user: shop
password: secret
secrets: ["`+vectorSecret+`"]
proxy: "socks5://u:p@proxy.example:1080"
guard: {mode: off}
`)
	require.NoError(t, err)
	sink := built.(*Sink)
	assert.Equal(t, sinks.BatchLimits{Size: 20, Wait: 50 * time.Millisecond, Ordered: true}, sink.BatchLimits())
	assert.Equal(t, 65536, sink.maxBytes)
	assert.Equal(t, "/shop", sink.source)
	assert.Equal(t, []string{"Basic c2hvcDpzZWNyZXQ="}, sink.headers["Authorization"])
	assert.Len(t, sink.keys, 1)
	assert.Equal(t, map[string]bool{"proxy.example:1080": true}, ownOf(sink).dialer.proxies)
}

func TestReservedHeadersAreRefused(t *testing.T) {
	for _, name := range []string{
		"host", "Content-Type", "content-length", "Transfer-Encoding", "Connection", "TE", "Upgrade",
		"traceparent", "tracestate", "idempotency-key", "waybill-meta-x", "webhook-signature", "Accept-Encoding",
	} {
		_, err := New(sinks.Instance{}, Config{URL: "https://partner.example", Headers: map[string]string{name: "x"}})
		assert.ErrorContains(t, err, "headers."+name+": ")
	}
}

func TestACAFileNeedsTLSAndCertificates(t *testing.T) {
	_, err := New(sinks.Instance{}, Config{URL: "http://partner.example", TLS: TLS{CAFile: "config_test.go"}})
	assert.ErrorContains(t, err, "tls.ca_file: url is plain http")
	assert.ErrorContains(t, err, "tls.ca_file: config_test.go: contains no certificate in PEM form")
}
