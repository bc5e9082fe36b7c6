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
	//
	// A collection has no payload, key and metadata, but its Items do. Its ID is that of the
	// collection, and Type and Version are those of its items if all have the same type.
	Payload any
	// Items are the notifications in the mail, oldest first: those of a collection, or only this
	// one. Items of an item are empty.
	Items []*Data
	// Count is the number of items in the mail, and Group the group of the collection; "" if the
	// mail is not for a collection. Items have them, too.
	Count int
	Group string
}

// newData returns the data of a mail for one notification.
func newData(e *notification.Envelope) (*Data, error) {
	item, err := newItem(e)
	if err != nil {
		return nil, err
	}
	item.Count = 1
	data := *item
	data.Items = []*Data{item}
	return &data, nil
}

func newItem(e *notification.Envelope) (*Data, error) {
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

// newest returns the last of the items.
func (d *Data) newest() *Data { return d.Items[len(d.Items)-1] }

func (d *Data) setLocale(locale string) {
	d.Locale = locale
	for _, item := range d.Items {
		item.Locale = locale
	}
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
