package kafka_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
)

func Example() {
	cluster := kfake.MustCluster(kfake.SeedTopics(1, "orders")) // instead of a real one
	defer cluster.Close()

	sink, err := kafka.New(sinks.Instance{Name: "events"}, kafka.Config{Brokers: cluster.ListenAddrs(), Topic: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer sink.Close(ctx)

	receipt, err := sink.Deliver(ctx, &notification.Delivery{
		Sink: "events",
		Envelope: &notification.Envelope{
			ID:         notification.NewID(),
			Type:       "order.placed",
			Version:    1,
			Key:        "order-17",
			OccurredOn: time.Now(),
			Payload:    []byte(`{"total": 12}`),
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(receipt)
	// Output: kafka orders/0@0
}
