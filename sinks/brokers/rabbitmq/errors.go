package rabbitmq

import (
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-go/waybill/sinks"
)

// Errors of a delivery.
var (
	// ErrUnroutable means that no queue is bound for the message.
	ErrUnroutable = errors.New("no queue gets the message")
	// ErrRefused means that a queue refused the message, for example because it is full.
	ErrRefused = errors.New("the broker refuses the message (basic.nack)")
	// ErrNoAnswer means that the broker did not answer in time. The connection is closed.
	ErrNoAnswer = errors.New("the broker does not answer")
	// ErrBlocked means that the broker accepts no messages, because it is short of memory or
	// disk space.
	ErrBlocked = errors.New("the broker blocks publishers")
)

var answers = []sinks.Answer{
	{Says: "basic.ack", Means: "delivered"},
	{Says: "basic.return: no queue is bound for the message", Means: "unavailable; with `mandatory: false` the broker confirms and drops it"},
	{Says: "basic.nack: a queue is full and rejects new messages, or has failed", Means: "unavailable"},
	{Says: "connection lost or refused, user or password refused, no such virtual host, no answer within `timeout`, publishers blocked", Means: "unavailable"},
	{Says: "403 ACCESS_REFUSED, 404 NOT_FOUND: no permission to write, no such exchange", Means: "unavailable"},
	{Says: "406 PRECONDITION_FAILED to a message: larger than max_message_size", Means: "permanent"},
	{Says: "406 PRECONDITION_FAILED to the declaration: the exchange has another type", Means: "unavailable"},
	{Says: "headers of more than 120 KiB, or a name or routing key of more than 255 bytes (not sent)", Means: "invalid"},
}

// classify adds the class to an error of Publish. An error that closes the channel or the connection
// has a reply code. Except for the message's size, it is about the sink.
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
