package main

import (
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/brokers/internal/brokertest"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestRabbitMQ(t *testing.T) {
	server := brokertest.Start(t, rabbitmq)
	t.Run("what no queue is bound for is kept", func(t *testing.T) { testUnrouted(t, server.URL) })
	t.Run("messages survive and say who they are", func(t *testing.T) { testProperties(t, server.URL) })
	brokertest.Run(t, brokertest.Subject{
		Broker:      rabbitmq,
		Unreachable: "amqp://guest:guest@127.0.0.1:1/",
		Watch:       watch,
	}, server)
}

func TestHeadersThatNoBrokerTakesArePermanent(t *testing.T) {
	t.Parallel()
	for name, metadata := range map[string]message.Metadata{
		"has a name of 256 bytes": {strings.Repeat("n", 256): "text"},
		"the limit is 122880":     {"name": strings.Repeat("t", maxHeaders)},
	} {
		m := message.NewMessage("1", nil)
		m.Metadata = metadata
		err := classed{}.Publish("order.placed", m) // which needs no broker for it
		class, _ := sinks.Classify(err)
		require.Equal(t, sinks.ClassPermanent, class)
		require.ErrorContains(t, err, name)
	}
}

func openChannel(t *testing.T, url string) *amqp091.Channel {
	t.Helper()
	connection, err := amqp091.Dial(url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, connection.Close()) })
	channel, err := connection.Channel()
	require.NoError(t, err)
	return channel
}

// watch binds a queue of the test's own for everything, and fetches it.
func watch(t *testing.T, url string) func() []*message.Message {
	channel := openChannel(t, url)
	require.NoError(t, (&amqp.DefaultTopologyBuilder{}).ExchangeDeclare(channel, exchange, newConfig(url)))
	queue, err := channel.QueueDeclare("", false, true, true, false, nil)
	require.NoError(t, err)
	require.NoError(t, channel.QueueBind(queue.Name, "#", exchange, false, nil))
	var all []*message.Message
	return func() []*message.Message {
		for {
			d, ok, err := channel.Get(queue.Name, true)
			require.NoError(t, err)
			if !ok {
				return all
			}
			m, err := amqp.DefaultMarshaler{}.Unmarshal(d)
			require.NoError(t, err)
			all = append(all, m)
		}
	}
}

func deliver(t *testing.T, url string, n int) string {
	t.Helper()
	sink, err := newSink(url)
	require.NoError(t, err)
	defer func() { require.NoError(t, sink.(sinks.Closer).Close(t.Context())) }()
	d := sinktest.NewDelivery(n)
	_, err = sink.Deliver(t.Context(), d)
	require.NoError(t, err)
	return d.ID
}

func testUnrouted(t *testing.T, url string) {
	channel := openChannel(t, url)
	id := deliver(t, url, 1)
	m, ok, err := channel.Get(unrouted, true)
	require.NoError(t, err)
	require.True(t, ok, "the message is gone")
	require.Equal(t, id, m.MessageId)
}

func testProperties(t *testing.T, url string) {
	channel := openChannel(t, url)
	id := deliver(t, url, 1)
	m, ok, err := channel.Get(unrouted, true)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, id, m.MessageId)
	require.Equal(t, amqp091.Persistent, m.DeliveryMode)
	require.Equal(t, "sinktest.happened", m.Type)
	require.Equal(t, "sinktest.happened", m.RoutingKey)
	require.Equal(t, "application/json", m.ContentType)
	require.EqualValues(t, 1735787045, m.Timestamp.Unix())
	require.Equal(t, "key-1", m.Headers["key"])
}
