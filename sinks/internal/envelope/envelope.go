// Package envelope has the JSON of a whole notification, which the sinks that write it share.
package envelope

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"mime"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/notification"
)

// Append appends a notification with some of its metadata as JSON. media is the content type of its
// payload.
func Append(b []byte, e *notification.Envelope, metadata notification.Metadata, media string) []byte {
	b = append(b, `{"id":`...)
	b = AppendText(b, e.ID)
	b = AppendMember(b, "type", e.Type)
	b = append(b, `,"version":`...)
	b = strconv.AppendInt(b, int64(e.Version), 10)
	if e.Key != "" {
		b = AppendMember(b, "key", e.Key)
	}
	if !e.OccurredOn.IsZero() {
		b = AppendMember(b, "occurred_on", FormatTime(e.OccurredOn))
	}
	if len(metadata) > 0 {
		text, _ := json.Marshal(metadata) // never fails for strings
		b = append(append(b, `,"metadata":`...), text...)
	}
	b = AppendPayload(b, "payload", media, e.Payload)
	return append(b, '}')
}

// AppendPayload appends a payload as a member of an object: JSON byte for byte, any other
// payload as base64 with the suffix "_base64", and an empty one not at all.
func AppendPayload(b []byte, name, media string, payload []byte) []byte {
	if len(payload) == 0 {
		return b
	}
	b = append(append(b, `,"`...), name...)
	if IsJSON(media) && utf8.Valid(payload) && json.Valid(payload) {
		return append(append(b, `":`...), bytes.TrimSpace(payload)...)
	}
	b = append(b, `_base64":"`...)
	return append(base64.StdEncoding.AppendEncode(b, payload), '"')
}

// AppendMember appends a text as a member of an object, which is not the first.
func AppendMember(b []byte, name, value string) []byte {
	b = append(append(b, `,"`...), name...)
	return AppendText(append(b, `":`...), value)
}

// AppendText appends a text.
func AppendText(b []byte, value string) []byte {
	text, _ := json.Marshal(value) // never fails for a string
	return append(b, text...)
}

// AppendArray appends the array of the first n deliveries; one appends a delivery. n is the number
// for which the array has at most limit bytes, at least 1; with a limit of 0 it is that of all.
func AppendArray(b []byte, batch []*notification.Delivery, limit int, one func([]byte, *notification.Delivery) []byte) (_ []byte, n int) {
	start := len(b)
	b = append(b, '[')
	for i, d := range batch {
		end := len(b)
		if i > 0 {
			b = append(b, ',')
		}
		b = one(b, d)
		if i > 0 && limit > 0 && len(b)-start >= limit { // no room for the bracket
			return append(b[:end], ']'), i
		}
	}
	return append(b, ']'), len(batch)
}

// FormatTime formats a time as RFC 3339 in UTC with microseconds, which stores keep.
func FormatTime(t time.Time) string {
	return t.UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano)
}

// IsJSON reports whether a media type is JSON: CloudEvents 1.0, JSON Event Format, section 3.1. The
// subtype is json or ends with +json.
func IsJSON(media string) bool {
	if media == "application/json" {
		return true
	}
	name, _, _ := mime.ParseMediaType(media) // "" if media is not a media type
	_, subtype, _ := strings.Cut(name, "/")
	return subtype == "json" || strings.HasSuffix(subtype, "+json")
}

// Message is the JSON of a notification, for reading it.
type Message struct {
	ID            string                `json:"id"`
	Type          string                `json:"type"`
	Version       int                   `json:"version"`
	Key           string                `json:"key"`
	OccurredOn    time.Time             `json:"occurred_on"`
	Metadata      notification.Metadata `json:"metadata"`
	Payload       json.RawMessage       `json:"payload"`
	PayloadBase64 []byte                `json:"payload_base64"`
}

// Envelope returns the notification. They share the payload.
func (m *Message) Envelope() (*notification.Envelope, error) {
	payload := []byte(m.Payload)
	if m.PayloadBase64 != nil {
		payload = m.PayloadBase64
	}
	e := &notification.Envelope{
		ID: m.ID, Type: m.Type, Version: m.Version, Key: m.Key, OccurredOn: m.OccurredOn.UTC(), Metadata: m.Metadata, Payload: payload,
	}
	return e, e.Validate()
}
