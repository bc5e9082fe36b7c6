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

// maxHeaders is the largest size of a message's headers in bytes. Headers and properties must fit
// into a frame of the default size, 128 KiB. RabbitMQ closes the connection if they do not.
const maxHeaders = 120 << 10

// newPublishing makes the broker's message. Its errors are invalid.
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

// headerName adds metadata- to reserved names. The broker uses CC and BCC as further routing keys,
// and refuses a string there. Different names stay different, because the publisher sink adds the
// prefix to names that begin with it.
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
		size += len(name) + len(text) + 6 // with the length of the name, the type, and the length of the value
	}
	if size > maxHeaders {
		return fmt.Errorf("the metadata have %d bytes, the limit is %d", size, maxHeaders)
	}
	return nil
}

// setProperties sets AMQP's properties from the headers. A value that is too long for a property is
// only a header.
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
