package redis

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// Fields of an entry, besides those of the metadata.
const (
	FieldID      = "id"      // the notification's id
	FieldPayload = "payload" // the payload, byte for byte
)

// ErrNoID means that an entry has no id, so it does not come from this sink.
var ErrNoID = errors.New("the entry has no id")

// Marshaler converts a message to the fields of an entry, and back. Metadata with the name id or
// payload becomes the field metadata-id or metadata-payload. It is safe for concurrent use.
type Marshaler struct {
	// MaxBytes is the largest name or value of a field in bytes; 0 means no limit.
	MaxBytes int
}

var _ redisstream.MarshallerUnmarshaller = Marshaler{}

// Marshal makes an entry. Its error is invalid if a field is too large.
func (m Marshaler) Marshal(_ string, of *message.Message) (map[string]any, error) {
	entry := make(map[string]any, len(of.Metadata)+2)
	for name, text := range of.Metadata {
		if name == FieldID || name == FieldPayload {
			name = publisher.MetadataPrefix + name
		}
		if err := m.check(name, len(text)); err != nil {
			return nil, err
		}
		entry[name] = text
	}
	entry[FieldID], entry[FieldPayload] = of.UUID, []byte(of.Payload)
	return entry, m.check(FieldPayload, len(of.Payload))
}

func (m Marshaler) check(name string, size int) error {
	if m.MaxBytes > 0 && max(size, len(name)) > m.MaxBytes {
		return sinks.Invalid(fmt.Errorf("%.40s has %d bytes, max_message_bytes is %d", name, size, m.MaxBytes))
	}
	return nil
}

// Unmarshal converts an entry to a message. It returns ErrNoID if the entry has no id.
func (Marshaler) Unmarshal(entry map[string]any) (*message.Message, error) {
	id, ok := entry[FieldID].(string)
	if !ok {
		return nil, ErrNoID
	}
	payload, _ := entry[FieldPayload].(string)
	m := message.NewMessage(id, []byte(payload))
	for name, value := range entry {
		if text, ok := value.(string); ok && name != FieldID && name != FieldPayload {
			m.Metadata[name] = text
		}
	}
	return m, nil
}
