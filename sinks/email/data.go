package email

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Data is the dot of a template.
type Data struct {
	ID         string
	Type       string
	Version    int
	Key        string
	OccurredOn time.Time
	Metadata   notification.Metadata
	// Locale is the language of the mail's text and html: the locale in the names of their
	// files, or Config.Locale if the names have none. It is empty in locale.tmpl.
	Locale string
	// Payload is the decoded JSON, usually a map: {{.Payload.customer.name}}. A missing field
	// is an error; for an optional one write {{with index .Payload "nickname"}}. Numbers are
	// json.Number and print unchanged; the functions int and float make them comparable. A
	// null prints nothing and is false.
	Payload any
}

func newData(e *notification.Envelope) (*Data, error) {
	payload, err := decodePayload(e.Payload)
	if err != nil {
		return nil, err
	}
	return &Data{
		ID:         e.ID,
		Type:       e.Type,
		Version:    e.Version,
		Key:        e.Key,
		OccurredOn: e.OccurredOn,
		Metadata:   e.Metadata,
		Payload:    payload,
	}, nil
}

func decodePayload(payload []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber() // otherwise the id 9007199254740993 would become another number
	var decoded any
	if err := decoder.Decode(&decoded); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPayload, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: there is more after the first value", ErrPayload)
	}
	return withNulls(decoded), nil
}

// null replaces a JSON null, which templates would print as "<no value>". As an empty slice it is
// false in {{if}}, and its text is empty.
type null []struct{}

func (null) String() string { return "" }

// withNulls replaces each nil in a decoded JSON value, in place.
func withNulls(v any) any {
	switch v := v.(type) {
	case nil:
		return null(nil)
	case map[string]any:
		for name, value := range v {
			v[name] = withNulls(value)
		}
	case []any:
		for i, value := range v {
			v[i] = withNulls(value)
		}
	}
	return v
}
