package httpsink

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/internal/cloudevents"
)

// envelopeMember names the payload in an envelope, and before "_base64" one that
// is not JSON.
const envelopeMember = "payload"

// appendEnvelope appends all of a notification as JSON. It is what a signature
// must cover: whoever replays a request could change its headers.
func (s *Sink) appendEnvelope(b []byte, d *notification.Delivery) []byte {
	b = append(b, `{"id":`...)
	b = appendText(b, d.ID)
	b = appendMember(b, "type", d.Type)
	b = append(b, `,"version":`...)
	b = strconv.AppendInt(b, int64(d.Version), 10)
	if d.Key != "" {
		b = appendMember(b, "key", d.Key)
	}
	if !d.OccurredOn.IsZero() {
		b = appendMember(b, "occurred_on", formatTime(d.OccurredOn))
	}
	if metadata := s.metadata.of(d.Metadata); len(metadata) > 0 {
		text, _ := json.Marshal(metadata) // texts can always be written
		b = append(append(b, `,"metadata":`...), text...)
	}
	b = appendPayload(b, envelopeMember, cloudevents.ContentType(d.Metadata, isPlain), d.Payload)
	return append(b, '}')
}

// appendPayload appends a payload as a member of an object. One that is JSON stands
// there byte for byte, any other one in base64; one without a byte not at all.
func appendPayload(b []byte, name, media string, payload []byte) []byte {
	if len(payload) == 0 {
		return b
	}
	b = append(append(b, `,"`...), name...)
	if isJSON(media) && utf8.Valid(payload) && json.Valid(payload) {
		return append(append(b, `":`...), bytes.TrimSpace(payload)...)
	}
	b = append(b, `_base64":"`...)
	return append(base64.StdEncoding.AppendEncode(b, payload), '"')
}

func appendMember(b []byte, name, value string) []byte {
	b = append(append(b, `,"`...), name...)
	return appendText(append(b, `":`...), value)
}

func appendText(b []byte, value string) []byte {
	text, _ := json.Marshal(value) // a text can always be written
	return append(b, text...)
}
