package httpsink

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

var hostileTexts = []string{
	"", " ", "%", "%0d%0a", "100%", "a b", " edges ", "\ttab\t",
	"x\r\nEvil: 1", "x\nEvil: 1\n\n{\"body\":1}", "x\r\n\r\nPOST /evil HTTP/1.1",
	"nul\x00", "\x7f", "größe €", "\xff\xfe", "日本", "a:b", "a;b=c", strings.Repeat("é", 300),
}

func FuzzAHeaderValueIsSafeAndCanBeReadBack(f *testing.F) {
	for _, s := range hostileTexts {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := encodeValue(s)
		require.True(t, isPlain(got), "%q", got)
		back, err := url.PathUnescape(got)
		require.NoError(t, err)
		require.Equal(t, s, back)
	})
}

func FuzzAMetadataNameIsSafeAndCanBeReadBack(f *testing.F) {
	for _, s := range hostileTexts {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := metaHeader(s)
		require.True(t, isToken(got), "%q", got)
		require.Equal(t, http.CanonicalHeaderKey(got), got)
		back, err := url.PathUnescape(strings.TrimPrefix(got, webhook.HeaderMetaPrefix))
		require.NoError(t, err)
		require.Equal(t, asciiLower(s), asciiLower(back))
	})
}

// asciiLower changes only ASCII letters, as HTTP does.
func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func TestHostileTextReachesTheReceiverAsData(t *testing.T) {
	r := newReceiver(t)
	sink := r.sink(t, Config{Format: FormatJSON, Secret: vectorSecret, Metadata: everything})
	for _, text := range hostileTexts {
		d := newDelivery()
		d.ID, d.Type, d.Key = "i"+text, "t"+text, "k"+text
		d.Metadata["content-type"] = text
		d.Metadata["traceparent"] = text
		d.Metadata["tracestate"] = text
		d.Metadata["value"] = text
		d.Metadata["name-"+text] = "v"

		_, err := sink.Deliver(t.Context(), d)

		require.NoError(t, err, "%q", text)
		all := r.all()
		got := all[len(all)-1]
		assert.Equal(t, string(d.Payload), got.Body)
		assert.Empty(t, got.Header.Get("Evil"))
		for header, want := range map[string]string{
			webhook.HeaderID: d.ID, webhook.HeaderType: d.Type, webhook.HeaderKey: d.Key, "Waybill-Meta-Value": text,
		} {
			value, err := url.PathUnescape(got.Header.Get(header))
			require.NoError(t, err)
			assert.Equal(t, want, value, header)
		}
		assert.Equal(t, "v", got.Header.Get(metaHeader("name-"+text)))
		assert.Equal(t,
			independentSignature(t, vectorSecret, got.Header.Get("webhook-id"), got.Header.Get("webhook-timestamp"), got.Body),
			got.Header.Get("webhook-signature"))
	}
	assert.Len(t, r.all(), len(hostileTexts))
}

func TestMetadataNamesThatDifferOnlyInCaseBothArrive(t *testing.T) {
	r := newReceiver(t)
	d := newDelivery()
	d.Metadata["tenant"], d.Metadata["Tenant"] = "a", "b"
	_, err := r.sink(t, Config{Metadata: everything}).Deliver(t.Context(), d)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"a", "b"}, r.only(t).Header.Values("Waybill-Meta-Tenant"))
}
