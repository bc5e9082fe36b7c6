package rabbitmq

import (
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-go/waybill/sinks"
)

// Errors of a delivery.
var (
	// ErrUnroutable: no queue is bound for the message.
	ErrUnroutable = errors.New("no queue gets the message")
	// ErrRefused: a queue did not take the message, such as a full one that rejects what is
	// published to it.
	ErrRefused = errors.New("the broker refuses the message (basic.nack)")
	// ErrNoAnswer: the broker did not answer in time, and the connection is closed.
	ErrNoAnswer = errors.New("the broker does not answer")
	// ErrBlocked: the broker takes no messages, because it is short of memory or of disk.
	ErrBlocked = errors.New("the broker blocks publishers")
)

var answers = []sinks.Answer{
	{Says: "basic.ack", Means: "delivered"},
	{Says: "basic.return: no queue is bound for the message", Means: "unavailable; with mandatory: false the broker confirms and drops it"},
	{Says: "basic.nack: a queue is full and rejects what is published, or has failed", Means: "unavailable"},
	{Says: "connection lost or refused, user or password refused, no such virtual host, no answer within timeout, publishers blocked", Means: "unavailable"},
	{Says: "403 ACCESS_REFUSED, 404 NOT_FOUND: no permission to write, no such exchange", Means: "unavailable"},
	{Says: "406 PRECONDITION_FAILED to a message: larger than max_message_size", Means: "permanent"},
	{Says: "406 PRECONDITION_FAILED to the declaration: the exchange has another type", Means: "unavailable"},
	{Says: "headers of more than 120 KiB, or a name or routing key of more than 255 bytes (not sent)", Means: "permanent"},
}

// classify is about errors of Publish. What closes the channel or the connection has a
// reply code; but for the message's size it is about the sink.
func classify(err error) error {
	var closed *amqp.Error
	switch {
	case errors.Is(err, ErrUnroutable), errors.Is(err, ErrRefused), errors.Is(err, ErrNoAnswer), errors.Is(err, ErrBlocked):
		return sinks.Unavailable(err)
	case !errors.As(err, &closed):
		return err
	case closed.Code == amqp.PreconditionFailed, closed.Code == amqp.ContentTooLarge:
		return sinks.Permanent(err)
	}
	return sinks.Unavailable(err)
}
