package jsonlines

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// Line is the content of a line, for programs that read it.
type Line struct {
	ID         string    `json:"id"`
	Type       string    `json:"type"`
	Version    int       `json:"version"`
	Key        string    `json:"key,omitempty"`
	OccurredOn time.Time `json:"occurred_on"` // in UTC
	DeliverAt  time.Time `json:"deliver_at,omitzero"`
	// Metadata is the notification's metadata.
	Metadata map[string]string `json:"metadata,omitempty"`
	// Payload is the payload if it is JSON in UTF-8; in a file, it has no spaces between its
	// values.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Base64 is any other payload, including an empty one; nil if Payload is set.
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
			payload = []byte{} // nil would become null
		}
		l.Base64 = &payload
	}
	return l
}

// CollectionLine is the content of a line with a collection.
type CollectionLine struct {
	ID    string `json:"id"`
	Group string `json:"group"`
	Items []Line `json:"items"`
}

// collectionLineOf returns the line of a collection. They share the payloads.
func collectionLineOf(c *sinks.Collection) CollectionLine {
	l := CollectionLine{ID: c.ID, Group: c.Group, Items: make([]Line, len(c.Members))}
	for i, d := range c.Members {
		l.Items[i] = LineOf(d.Envelope)
	}
	return l
}

// encode returns a line as JSON with its line end.
func encode(line any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(line); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLine, err) // for example if a year has five digits
	}
	return b.Bytes(), nil
}
