package publisher_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// Whatever has a Watermill publisher is a destination; here it is Watermill's
// channel inside the process. The engine makes the delivery; here it is made by
// hand.
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

var errNoServers = errors.New("no servers available") // of some library

// The application says what its library's errors mean.
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
