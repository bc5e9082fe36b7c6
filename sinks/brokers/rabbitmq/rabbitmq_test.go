package rabbitmq_test

import (
	"bytes"
	"strings"
	"testing"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers/brokertest"
	"github.com/waybill-go/waybill/sinks/brokers/internal/kindtest"
	"github.com/waybill-go/waybill/sinks/brokers/rabbitmq"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRabbitMQ(t *testing.T) {
	server := brokertest.Start(t, brokertest.StartRabbitMQ)
	b := broker{server.URL}
	t.Run("a message that no queue gets is unavailable", b.testUnroutable)
	t.Run("an exchange that does not exist is unavailable", b.testNoExchange)
	t.Run("an exchange of another type is unavailable", b.testOtherType)
	t.Run("no error repeats the password", b.testPasswordInAnswer)
	t.Run("a missing permission to write is unavailable", b.testNoRight)
	t.Run("a full queue is unavailable", b.testFull)
	t.Run("the routing keys of the default exchange are queues", b.testDefaultExchange)
	t.Run("messages are persistent and have properties", b.testProperties)
	t.Run("a text that is too long for AMQP is permanent", b.testTooLong)
	t.Run("metadata cannot add queues", b.testCopies)
	t.Run("a Watermill subscriber reads the messages", b.testConsumer)
	t.Run("a queue that confirms nothing does not affect others", b.testStuckQueue)
	t.Run("an overdue message ends its connection within a second", b.testGrace)
	kindtest.Run(t, kindtest.Subject{
		Kind: rabbitmq.Kind(), Server: server, Settings: settings, Watch: b.watch,
		Encrypted: func(url string) string { return strings.Replace(url, "amqp://", "amqps://", 1) },
		Refused: func(n int) *notification.Delivery {
			d := sinktest.NewDelivery(n)
			d.Payload = bytes.Repeat([]byte("x"), brokertest.MaxRabbitMQ+1)
			return d
		},
	})
}

func settings(url string) string {
	return "url: " + url + "\nexchange: shop\nexchange_type: topic\ntopic: '{{.Type}}'"
}

type broker struct{ url string }

// on calls use with a channel of a new connection.
func (b broker) on(t *testing.T, use func(*amqp.Channel)) {
	t.Helper()
	connection, err := amqp.Dial(b.url)
	require.NoError(t, err)
	defer connection.Close()
	channel, err := connection.Channel()
	require.NoError(t, err)
	use(channel)
}

// queue declares an empty queue, bound to the exchange shop for everything.
func (b broker) queue(t *testing.T, name string, arguments amqp.Table) {
	t.Helper()
	b.on(t, func(c *amqp.Channel) {
		require.NoError(t, c.ExchangeDeclare("shop", "topic", true, false, false, false, nil))
		_, err := c.QueueDeclare(name, true, false, false, false, arguments)
		require.NoError(t, err)
		_, err = c.QueuePurge(name, false)
		require.NoError(t, err)
		require.NoError(t, c.QueueBind(name, "#", "shop", false, nil))
	})
	t.Cleanup(func() {
		b.on(t, func(c *amqp.Channel) {
			_, err := c.QueueDelete(name, false, false, false)
			require.NoError(t, err)
		})
	})
}

func (b broker) watch(t *testing.T) func() []*message.Message {
	b.queue(t, "watch", nil)
	var all []*message.Message
	return func() []*message.Message {
		b.on(t, func(c *amqp.Channel) {
			for {
				d, ok, err := c.Get("watch", true)
				require.NoError(t, err)
				if !ok {
					return
				}
				m, err := wmamqp.DefaultMarshaler{}.Unmarshal(d)
				require.NoError(t, err)
				all = append(all, m)
			}
		})
		return all
	}
}

func (b broker) sink(t *testing.T, settings string) sinks.Sink {
	t.Helper()
	return kindtest.New(t, rabbitmq.Kind(), sinks.Instance{}, "url: "+b.url+"\ntopic: '{{.Type}}'\n"+settings)
}

func (b broker) testUnroutable(t *testing.T) {
	sink := b.sink(t, "exchange: empty\nexchange_type: topic")
	for n := range 3 {
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(n))
		require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
		require.ErrorIs(t, err, rabbitmq.ErrUnroutable)
		require.ErrorContains(t, err, `exchange "empty", routing key "sinktest.happened": NO_ROUTE`)
	}
	b.on(t, func(c *amqp.Channel) {
		_, err := c.QueueDeclare("late", false, true, false, false, nil)
		require.NoError(t, err)
		require.NoError(t, c.QueueBind("late", "#", "empty", false, nil))
		_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(4))
		require.NoError(t, err, "a queue is bound now")
	})

	dropping := b.sink(t, "exchange: nowhere\nexchange_type: fanout\nmandatory: false")
	_, err := dropping.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
}

func (b broker) testNoExchange(t *testing.T) {
	sink := b.sink(t, "exchange: missing")
	for n := range 3 {
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(n))
		require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
		var refusal *amqp.Error
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, amqp.NotFound, refusal.Code)
	}
	require.ErrorContains(t, sink.(sinks.HealthChecker).CheckHealth(t.Context()), "missing")
}

// testPasswordInAnswer uses an exchange named like the password, because the broker repeats the name.
func (b broker) testPasswordInAnswer(t *testing.T) {
	sink := kindtest.New(t, rabbitmq.Kind(), sinks.Instance{}, "url: "+b.url+"\nexchange: no-hunter22\ntopic: shop")
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	for _, err := range []error{err, sink.(sinks.HealthChecker).CheckHealth(t.Context())} {
		require.ErrorContains(t, err, "no exchange 'no-***'")
		require.NotContains(t, err.Error(), "hunter2")
	}
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
}

func (b broker) testOtherType(t *testing.T) {
	b.queue(t, "shop", nil)
	sink := b.sink(t, "exchange: shop\nexchange_type: fanout")
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
}

// testNoRight uses an exchange that accepts messages only from other exchanges.
func (b broker) testNoRight(t *testing.T) {
	b.on(t, func(c *amqp.Channel) {
		require.NoError(t, c.ExchangeDeclare("inside", "topic", true, false, true, false, nil))
	})
	_, err := b.sink(t, "exchange: inside").Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	var refusal *amqp.Error
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, amqp.AccessRefused, refusal.Code)
}

func (b broker) testFull(t *testing.T) {
	b.queue(t, "full", amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
	sink := b.sink(t, "exchange: shop")
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(0))
	require.NoError(t, err)
	require.Eventually(t, func() bool { // a full queue begins to refuse messages a little later
		_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(1))
		return err != nil
	}, kindtest.Patience, kindtest.Patience/10000)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.ErrorIs(t, err, rabbitmq.ErrRefused)
}

func (b broker) testDefaultExchange(t *testing.T) {
	b.queue(t, "sinktest.happened", nil)
	sink := b.sink(t, "")
	d := sinktest.NewDelivery(1)
	receipt, err := sink.Deliver(t.Context(), d)
	require.NoError(t, err)
	require.Equal(t, notification.Receipt("published to sinktest.happened"), receipt)
	require.NoError(t, sink.(sinks.HealthChecker).CheckHealth(t.Context()))
	b.on(t, func(c *amqp.Channel) {
		m, ok, err := c.Get("sinktest.happened", true)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, d.ID, m.MessageId)
	})
}

func (b broker) testProperties(t *testing.T) {
	b.queue(t, "properties", nil)
	d := sinktest.NewDelivery(1)
	_, err := b.sink(t, "exchange: shop").Deliver(t.Context(), d)
	require.NoError(t, err)
	b.on(t, func(c *amqp.Channel) {
		m, ok, err := c.Get("properties", true)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, d.ID, m.MessageId)
		require.Equal(t, amqp.Persistent, m.DeliveryMode)
		require.Equal(t, "sinktest.happened", m.Type)
		require.Equal(t, "sinktest.happened", m.RoutingKey)
		require.Equal(t, "application/json", m.ContentType)
		require.Equal(t, "correlation-1", m.CorrelationId)
		require.EqualValues(t, 1735787045, m.Timestamp.Unix())
		require.Equal(t, "key-1", m.Headers["key"])
	})
}

func (b broker) testTooLong(t *testing.T) {
	b.queue(t, "too-long", nil)
	sink := kindtest.New(t, rabbitmq.Kind(), sinks.Instance{}, "{url: '"+b.url+"', exchange: shop, topic: '{{.Key}}'}")
	for says, change := range map[string]func(*notification.Delivery){
		"has a name of 256 bytes": func(d *notification.Delivery) { d.Metadata[strings.Repeat("n", 256)] = "text" },
		"the limit is 122880":     func(d *notification.Delivery) { d.Metadata["name"] = strings.Repeat("t", 120<<10) },
		"has 300 bytes":           func(d *notification.Delivery) { d.Key = strings.Repeat("k", 300) },
	} {
		d := sinktest.NewDelivery(1)
		change(d)
		_, err := sink.Deliver(t.Context(), d)
		require.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%v", err)
		require.ErrorContains(t, err, says)
	}
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(2))
	require.NoError(t, err)
}
