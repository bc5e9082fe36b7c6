package pubsub_test

import (
	"context"
	"fmt"
	"log"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/gcp/pubsub"
)

func ExampleNew() {
	ctx := context.Background()
	google := pstest.NewServer() // Google's fake
	defer google.Close()
	_, err := google.GServer.CreateTopic(ctx, &pubsubpb.Topic{Name: "projects/shop/topics/orders"})
	if err != nil {
		log.Fatal(err)
	}

	c := pubsub.Config{Topic: "orders", Project: "shop", Endpoint: "http://" + google.Addr}
	sink, err := pubsub.New(sinks.Instance{Name: "events"}, c)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = sink.Close(ctx) }()
	receipt, err := sink.Deliver(ctx, &notification.Delivery{Envelope: &notification.Envelope{
		ID: notification.NewID(), Type: "order.placed", Version: 1, Key: "o-17", Payload: []byte(`{"order":17}`),
	}})
	fmt.Println(receipt, err)
	// Output: pubsub orders m0 <nil>
}
