package httpsink

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

var everything = []string{"*"}

func describedDelivery() *notification.Delivery {
	d := newDelivery()
	d.Metadata = notification.Metadata{
		"content-type": "application/json", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b",
		"tenant": "acme", "order-id": "42", "order-source": "web", "Tenant": "b", "internal-user": "zoe",
	}
	return d
}

// metadataSent lists the metadata in a request, under the names of the format.
func metadataSent(t *testing.T, r received, format string) (names []string) {
	t.Helper()
	switch format {
	case FormatJSON:
		for name := range r.Header {
			if name, ok := strings.CutPrefix(name, webhook.HeaderMetaPrefix); ok {
				names = append(names, strings.ToLower(name))
			}
		}
	default:
		for name := range readEvents(t, r)[0].Extensions() {
			if !slices.Contains([]string{"partitionkey", "payloadversion", "traceparent", "tracestate"}, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

func TestOnlyListedMetadataIsSent(t *testing.T) {
	r := newReceiver(t)
	for _, format := range []string{FormatJSON, FormatBinary, FormatStructured, FormatBatch} {
		for _, tt := range []struct{ list, want []string }{
			{nil, nil},
			{[]string{"tenant"}, []string{"tenant"}},
			{[]string{"order-*"}, []string{"order-id", "order-source"}},
			{[]string{"order-*", "order-id", "nowhere", "ten"}, []string{"order-id", "order-source"}},
			{[]string{"traceparent", "content-type"}, nil},
			{everything, []string{"internal-user", "order-id", "order-source", "tenant"}},
		} {
			r.forget()
			c := Config{Format: format, Metadata: tt.list}
			want := slices.Clone(tt.want)
			if format != FormatJSON {
				c.Source = source
				for i := range want {
					want[i] = strings.ReplaceAll(want[i], "-", "")
				}
			}
			_, err := r.sink(t, c).Deliver(t.Context(), describedDelivery())
			require.NoError(t, err)
			request := r.only(t)
			assert.Equal(t, want, metadataSent(t, request, format), "%s %v", format, tt.list)
			sent := strings.Join(append(slices.Collect(headerTexts(request)), request.Body), " ")
			assert.Equal(t, slices.Contains(tt.list, "*"), strings.Contains(sent, "zoe"), "%s %v", format, tt.list)
			if format != FormatBatch {
				assert.Equal(t, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", request.Header.Get("Traceparent"))
				assert.Equal(t, "a=b", request.Header.Get("Tracestate"))
			}
			if format != FormatJSON {
				assert.Equal(t, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", readEvents(t, request)[0].Extensions()["traceparent"])
			}
		}
	}
}

func headerTexts(r received) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name, values := range r.Header {
			if !yield(name + ": " + strings.Join(values, " ")) {
				return
			}
		}
	}
}

// The two names become the same name in an event. The unlisted one must not be sent.
func TestUnlistedMetadataDoesNotHideListedMetadata(t *testing.T) {
	r := newReceiver(t)
	_, err := r.sink(t, Config{Format: FormatStructured, Source: source, Metadata: []string{"tenant"}}).Deliver(t.Context(), describedDelivery())
	require.NoError(t, err)
	assert.Equal(t, "acme", readEvents(t, r.only(t))[0].Extensions()["tenant"])
}

func TestMetadataListsAreChecked(t *testing.T) {
	for entry, want := range map[string]string{
		"":         `metadata[1]: is empty; write a name, a prefix followed by *, or * for all`,
		"a*b":      `metadata[1]: "a*b" has a * that is not at its end`,
		"*a":       `metadata[1]: "*a" has a * that is not at its end`,
		"order-**": `metadata[1]: "order-**" has a * that is not at its end`,
	} {
		c := Config{URL: "https://partner.example", Metadata: []string{"tenant", entry}}
		assert.ErrorContains(t, c.Validate(), want)
	}
}
