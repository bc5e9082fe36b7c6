package rabbitmq

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// channel publishes one message at a time, with confirmation.
type channel struct {
	*amqp.Channel
	returned chan amqp.Return
	closed   chan *amqp.Error
}

func openChannel(connection *amqp.Connection) (*channel, error) {
	ch, err := connection.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Confirm(false); err != nil {
		return nil, err
	}
	return &channel{
		Channel: ch,
		// One place is enough for a channel with one message in flight, and then the client
		// has put in what comes before the confirmation once that is there.
		returned: ch.NotifyReturn(make(chan amqp.Return, 1)),
		closed:   ch.NotifyClose(make(chan *amqp.Error, 1)),
	}, nil
}

// publish returns when the broker has confirmed the message.
//
// A broker returns a mandatory message that no queue gets, and confirms it after that.
// What closes the channel is counted by the client as a refusal of all that is not yet
// confirmed.
func (c *channel) publish(exchange, key string, mandatory bool, m amqp.Publishing) error {
	confirmation, err := c.PublishWithDeferredConfirm(exchange, key, mandatory, false, m)
	if err != nil {
		return err
	}
	confirmed := confirmation.Wait()
	select {
	case back, ok := <-c.returned:
		if ok {
			return fmt.Errorf("%w: exchange %q, routing key %q: %s", ErrUnroutable, exchange, key, back.ReplyText)
		}
	default:
	}
	if confirmed {
		return nil
	}
	select {
	case err := <-c.closed:
		if err != nil {
			return err
		}
		return amqp.ErrClosed
	default:
		return ErrRefused
	}
}
