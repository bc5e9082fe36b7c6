package jsonlines_test

import (
	"context"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/jsonlines"
)

// Without a path, lines go to the program's output. Normally the engine calls Deliver.
func Example() {
	sink, err := jsonlines.New(jsonlines.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	receipt, err := sink.Deliver(context.Background(), &notification.Delivery{
		Envelope: &notification.Envelope{
			ID: "order-17", Type: "order.placed", Version: 1, Key: "customer-4",
			OccurredOn: time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC),
			Payload:    []byte(`{"order": 17}`),
		},
	})
	fmt.Println(receipt, err)
	// Output:
	// {"id":"order-17","type":"order.placed","version":1,"key":"customer-4","occurred_on":"2026-03-01T12:30:00Z","payload":{"order":17}}
	// jsonlines stdout <nil>
}
