package rabbitmq

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// channel publishes one message at a time, and waits for its confirmation.
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
		// A buffer of one is enough, because a channel has one message in flight. The client
		// sends a returned message to it before it reports the confirmation.
		returned: ch.NotifyReturn(make(chan amqp.Return, 1)),
		closed:   ch.NotifyClose(make(chan *amqp.Error, 1)),
	}, nil
}

// publish publishes a message and waits for the broker's confirmation.
//
// If no queue gets a mandatory message, the broker returns it, and confirms it afterwards. If the
// channel is closed, the client reports all unconfirmed messages as refused.
func (c *channel) publish(exchange, key string, mandatory bool, m amqp.Publishing) error {
	confirmation, err := c.PublishWithDeferredConfirm(exchange, key, mandatory, false, m)
	if err != nil {
		return err
	}
	confirmed := confirmation.Wait()
	select {
	case returned, ok := <-c.returned:
		if ok {
			return fmt.Errorf("%w: exchange %q, routing key %q: %s", ErrUnroutable, exchange, key, returned.ReplyText)
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
