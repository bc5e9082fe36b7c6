package process

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/redact"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestAPayloadThatIsNotJSONIsBase64(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ contentType, payload, want string }{
		"JSON":              {"application/json", `{"b": 1.0,"a":"<é>"}`, `"payload":{"b":1.0,"a":"<é>"}`},
		"JSON with charset": {"application/json; charset=utf-8", `1`, `"payload":1`},
		"JSON by suffix":    {"application/cloudevents+json", `[]`, `"payload":[]`},
		"no content type":   {"", "[\n1\n]", `"payload":[1]`},
		"broken JSON":       {"application/json", `{"a":`, `"base64":true,"payload":"eyJhIjo="`},
		"broken UTF-8":      {"application/json", "\"\xff\"", `"base64":true,"payload":"Iv8i"`},
		"nothing":           {"application/json", ``, `"base64":true,"payload":""`},
		"other":             {"text/plain", `1`, `"base64":true,"payload":"MQ=="`},
		"odd type":          {";", `1`, `"base64":true,"payload":"MQ=="`},
	} {
		d := sinktest.NewDelivery(1)
		d.Metadata = notification.Metadata{notification.MetadataContentType: c.contentType}
		d.Payload = []byte(c.payload)
		line, err := encodeDelivery(1, d)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(string(line), c.want+"}\n"), "%s: %s", name, line)
		require.Equal(t, 1, strings.Count(string(line), "\n"))
	}
}

func TestALineContainsTheWholeNotification(t *testing.T) {
	t.Parallel()
	d := &notification.Delivery{
		Envelope: &notification.Envelope{
			ID: "0198c0de-0000-7000-8000-000000000001", Type: "order.placed", Version: 3, Key: "o-17",
			OccurredOn: time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC),
			DeliverAt:  time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC),
			Payload:    []byte(`{"order": 17}`),
		},
		Attempt: 2,
	}
	line, err := encodeDelivery(42, d)
	require.NoError(t, err)
	require.Equal(t, `{"line":"deliver","delivery":42,"attempt":2,"id":"0198c0de-0000-7000-8000-000000000001","type":"order.placed","version":3,"key":"o-17",`+
		`"occurred_on":"2026-01-02T03:04:05.678901Z","deliver_at":"2026-01-02T04:00:00Z","metadata":{},"payload":{"order":17}}`+"\n", string(line))
	line, err = encodeCollection(43, &sinks.Collection{ID: "c-1", Group: "jane", Attempt: 3, Members: []*notification.Delivery{d, d}})
	require.NoError(t, err)
	const item = `{"id":"0198c0de-0000-7000-8000-000000000001","type":"order.placed","version":3,"key":"o-17",` +
		`"occurred_on":"2026-01-02T03:04:05.678901Z","deliver_at":"2026-01-02T04:00:00Z","metadata":{},"payload":{"order":17}}`
	require.Equal(t, `{"line":"collection","delivery":43,"attempt":3,"id":"c-1","group":"jane","items":[`+item+","+item+"]}\n", string(line))
	hello, err := encodeHello("shop", 4096)
	require.NoError(t, err)
	require.Equal(t, `{"line":"hello","protocol":"waybill-process","versions":[1],"sink":"shop","max_line_bytes":4096}`+"\n", string(hello))
}

func FuzzDecodeReply(f *testing.F) {
	for _, seed := range []string{
		`{"line":"hello","version":1}`, `{"line":"answer","delivery":1,"outcome":"ok","receipt":"r"}`,
		`{"line":"answer","delivery":2,"outcome":"throttled","seconds":1e308}`, `{"line":"answer","delivery":1,"outcome":"throttled","until":"2026-01-02T15:04:05+23:59"}`,
		`{"line":"answer","delivery":1e3}`, `null`, `[]`, `{"line":"answer","delivery":3,"seconds":"1"}`, "{\"line\":\"answer\",\"delivery\":1,\"error\":\"\xff\x00\"}",
	} {
		f.Add([]byte(seed))
	}
	now := time.Now()
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := decodeReply(line, redact.Credentials{})
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		if r.Line == lineHello {
			if r.checkHello() == nil {
				require.Equal(t, ProtocolVersion, r.Version)
			}
			return
		}
		require.NotNil(t, r.Delivery)
		receipt, err := r.result(now)
		text := fmt.Sprint(receipt, err)
		require.NotContains(t, text, "\x00")
		require.LessOrEqual(t, len(text), 2*maxErrorBytes)
		if class, until := sinks.Classify(err); err != nil && class == sinks.ClassThrottled {
			require.True(t, until.After(now) && !until.After(now.Add(maxThrottle)), until)
		}
	})
}
