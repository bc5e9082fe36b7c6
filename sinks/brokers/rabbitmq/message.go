package rabbitmq

import (
	"fmt"
	"strings"
	"time"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// maxHeaders is what a message's headers may have in bytes: they must fit into a
// frame of the default size, 128 KiB, with the properties. RabbitMQ closes the
// connection over larger ones.
const maxHeaders = 120 << 10

// newPublishing makes the broker's message. Its errors are about the message.
func newPublishing(key string, m *message.Message) (amqp.Publishing, error) {
	if len(key) > maxName {
		return amqp.Publishing{}, fmt.Errorf("routing key %.40q… has %d bytes, AMQP's limit is %d", key, len(key), maxName)
	}
	headed := message.NewMessage(m.UUID, m.Payload)
	for name, text := range m.Metadata {
		headed.Metadata[headerName(name)] = text
	}
	if err := checkHeaders(headed); err != nil {
		return amqp.Publishing{}, err
	}
	return wmamqp.DefaultMarshaler{PostprocessPublishing: setProperties}.Marshal(headed)
}

// headerName puts metadata- before names that mean something else: the broker takes CC and
// BCC for further routing keys, and refuses a text there. No two names become one, since
// the publisher sink does the same with those that begin so.
func headerName(name string) string {
	if strings.EqualFold(name, "CC") || strings.EqualFold(name, "BCC") || name == wmamqp.DefaultMessageUUIDHeaderKey {
		return publisher.MetadataPrefix + name
	}
	return name
}

func checkHeaders(m *message.Message) error {
	size := len(m.UUID)
	for name, text := range m.Metadata {
		if len(name) > maxName {
			return fmt.Errorf("metadata %.40q… has a name of %d bytes, AMQP's limit is %d", name, len(name), maxName)
		}
		size += len(name) + len(text) + 6 // length, kind, length
	}
	if size > maxHeaders {
		return fmt.Errorf("the metadata have %d bytes, the limit is %d", size, maxHeaders)
	}
	return nil
}

// setProperties says in AMQP's own words what the headers say too. A text that is too long
// for a property is only a header.
func setProperties(m amqp.Publishing) amqp.Publishing {
	text := func(header string) string {
		text, _ := m.Headers[header].(string)
		if len(text) > maxName {
			return ""
		}
		return text
	}
	m.MessageId = text(wmamqp.DefaultMessageUUIDHeaderKey)
	m.Type = text(publisher.MetadataType)
	m.ContentType = text(notification.MetadataContentType)
	m.CorrelationId = text(notification.MetadataCorrelationID)
	m.Timestamp, _ = time.Parse(publisher.OccurredOnLayout, text(publisher.MetadataOccurredOn))
	return m
}
