package demo

import (
	"context"
	"errors"

	"github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
)

// topicPrefix is the beginning of the names of the demo's topics; a random part follows.
const topicPrefix = "waybill-demo"

// topic is the destination of the kafka sink. It counts what the brokers have stored.
type topic struct {
	*receiver.Topic
	broker *receiver.Broker // nil if the brokers are the user's own
	got    *arrivals
}

var _ destination = (*topic)(nil)

// openTopic creates a topic for this demo and starts to consume it. Unless brokers are given, it starts
// a broker inside the process, which stores its data in folder.
func openTopic(ctx context.Context, brokers []string, folder string) (t *topic, err error) {
	t = &topic{got: newArrivals()}
	if len(brokers) == 0 {
		if t.broker, err = receiver.StartBroker(folder, 0); err != nil {
			return nil, err
		}
		brokers = t.broker.Addresses
	}
	if t.Topic, err = receiver.OpenTopic(ctx, brokers, topicPrefix); err != nil {
		return nil, errors.Join(err, t.close())
	}
	t.Consume(func(id string, _ []byte) { t.got.add(id) })
	return t, nil
}

func kafkaConfig(brokers []string, topic string) *kafka.Config {
	c := new(kafka.Config)
	c.SetDefaults()
	c.Brokers, c.Topic = brokers, topic
	return c
}

func (t *topic) sink() (forwarder.Sink, error) {
	s, err := kafka.New(sinks.Instance{Name: kafkaSink}, *kafkaConfig(t.Brokers, t.Name))
	return forwarder.Sink{Sink: s, Retry: retry}, err
}

func (t *topic) arrived() *arrivals { return t.got }

func (t *topic) counts() string { return "consumed" }

func (t *topic) catchUp(ctx context.Context) error { return t.CatchUp(ctx) }

func (t *topic) close() error {
	var err error
	if t.Topic != nil {
		err = t.Close()
	}
	if t.broker != nil {
		t.broker.Close()
	}
	return err
}
