package jsonlines

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/notification"
)

// Line is the content of a line, for programs that read it.
type Line struct {
	ID         string    `json:"id"`
	Type       string    `json:"type"`
	Version    int       `json:"version"`
	Key        string    `json:"key,omitempty"`
	OccurredOn time.Time `json:"occurred_on"` // in UTC
	DeliverAt  time.Time `json:"deliver_at,omitzero"`
	// Metadata is everything that travelled beside the payload.
	Metadata map[string]string `json:"metadata,omitempty"`
	// Payload is a payload that is JSON in UTF-8, without spaces between its
	// values; nil for every other.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Base64 is a payload that is not, empty ones among them; nil where Payload is
	// set.
	Base64 *[]byte `json:"payload_base64,omitempty"`
}

// LineOf returns the line of an envelope. They share the payload.
func LineOf(e *notification.Envelope) Line {
	l := Line{
		ID: e.ID, Type: e.Type, Version: e.Version, Key: e.Key,
		OccurredOn: e.OccurredOn.UTC(), DeliverAt: e.DeliverAt.UTC(), Metadata: e.Metadata,
	}
	if utf8.Valid(e.Payload) && json.Valid(e.Payload) {
		l.Payload = e.Payload
	} else {
		payload := e.Payload
		if payload == nil {
			payload = []byte{} // nil would be null
		}
		l.Base64 = &payload
	}
	return l
}

// encode returns the line with its end.
func encode(e *notification.Envelope) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(LineOf(e)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLine, err) // such as a year of five digits
	}
	return b.Bytes(), nil
}
