package store

import (
	"encoding/json"

	"github.com/waybill-go/waybill/framework/notification"
)

// DecodeMetadata reads the metadata column: a flat JSON object. Values of
// producers in other languages may be anything: what is not a string is kept as
// its JSON text, and null as "".
func DecodeMetadata(raw []byte) (notification.Metadata, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil {
		return nil, err
	}
	m := make(notification.Metadata, len(values))
	for name, value := range values {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		m[name] = text
	}
	return m, nil
}

// EncodeMetadata is the inverse of DecodeMetadata; nil gives {}.
func EncodeMetadata(m notification.Metadata) (string, error) {
	if m == nil {
		return "{}", nil
	}
	raw, err := json.Marshal(m)
	return string(raw), err
}
