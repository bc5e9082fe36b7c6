package publisher_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// Any Watermill publisher can be a destination, such as Watermill's in-process channel. Normally the
// engine calls Deliver.
func Example() {
	pubSub := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 1}, nil)
	messages, err := pubSub.Subscribe(context.Background(), "shop.order.placed")
	if err != nil {
		fmt.Println(err)
		return
	}
	sink, err := publisher.New(pubSub, publisher.Config{Topic: "shop.{{.Type}}"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sink.Close(context.Background())

	receipt, err := sink.Deliver(context.Background(), &notification.Delivery{
		Envelope: &notification.Envelope{ID: "order-17", Type: "order.placed", Version: 1, Key: "customer-4", Payload: []byte(`{"order":17}`)},
	})
	fmt.Println(receipt, err)
	m := <-messages
	m.Ack()
	fmt.Println(m.UUID, m.Metadata.Get(publisher.MetadataKey), string(m.Payload))
	// Output:
	// published to shop.order.placed <nil>
	// order-17 customer-4 {"order":17}
}

var errNoServers = errors.New("no servers available") // an error of a library

// The application classifies the errors of its library.
func ExampleConfig_classify() {
	sink, err := publisher.New(failing{errNoServers}, publisher.Config{
		Topic: "orders",
		Classify: func(err error) error {
			if errors.Is(err, errNoServers) {
				return sinks.Unavailable(err)
			}
			return err
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sink.Close(context.Background())

	_, err = sink.Deliver(context.Background(), &notification.Delivery{
		Envelope: &notification.Envelope{ID: "order-17", Type: "order.placed", Version: 1},
	})
	class, _ := sinks.Classify(err)
	fmt.Println(class)
	// Output: unavailable
}

// A kind for the configuration file consists of a struct of settings and a function that makes a
// publisher from them. With program.Kinds(kind), the waybill command has the kind.
func ExampleNewLazy() {
	type settings struct {
		Topic  string `yaml:"topic" doc:"Where messages go. Required."`
		Buffer int64  `yaml:"buffer" doc:"Messages that wait for a subscriber. Default 0."`
	}
	kind := sinks.NewKind("channel", "Publishes to Watermill's channel inside the process.",
		func(_ sinks.Instance, c settings) (sinks.Sink, error) {
			return publisher.NewLazy(func(context.Context) (message.Publisher, error) {
				return gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: c.Buffer}, nil), nil
			}, publisher.Config{Topic: c.Topic})
		})

	node := yaml.Node{}
	if err := yaml.Unmarshal([]byte("{topic: 'shop.{{.Type}}', buffer: 1}"), &node); err != nil {
		fmt.Println(err)
		return
	}
	sink, err := kind.Build(sinks.Instance{Name: "events"}, node.Decode)
	if err != nil {
		fmt.Println(err)
		return
	}
	receipt, err := sink.Deliver(context.Background(), &notification.Delivery{
		Envelope: &notification.Envelope{ID: "order-17", Type: "order.placed", Version: 1},
	})
	fmt.Println(receipt, err)
	fmt.Println(sink.(sinks.Closer).Close(context.Background()))
	// Output:
	// published to shop.order.placed <nil>
	// <nil>
}
