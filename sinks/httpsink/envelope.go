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

// envelopeMember is the name of the payload in an envelope. A payload that is not JSON has the
// suffix "_base64".
const envelopeMember = "payload"

// appendEnvelope appends the whole notification as JSON, so that the signature covers it.
// Headers are not signed: an attacker who replays a request could change them.
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
		text, _ := json.Marshal(metadata) // never fails for strings
		b = append(append(b, `,"metadata":`...), text...)
	}
	b = appendPayload(b, envelopeMember, cloudevents.ContentType(d.Metadata, isPlain), d.Payload)
	return append(b, '}')
}

// appendPayload appends a payload as a member of an object: JSON byte for byte, any other
// payload as base64, and an empty one not at all.
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
	text, _ := json.Marshal(value) // never fails for a string
	return append(b, text...)
}
