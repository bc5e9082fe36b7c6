package function_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks/function"
)

type OrderPlaced struct{ Order, Customer string }

type OrderShipped struct{ Order string }

// A function becomes a sink. Normally the engine calls Deliver.
func ExampleHandle() {
	types := registry.New()
	if err := registry.Register[OrderPlaced](types, "order.placed"); err != nil {
		fmt.Println(err)
		return
	}
	sink := function.Handle(types, func(_ context.Context, o OrderPlaced) error {
		fmt.Println("reserve the goods of", o.Order)
		return nil
	})

	_, err := sink.Deliver(context.Background(), &notification.Delivery{
		Envelope: &notification.Envelope{
			ID: "1", Type: "order.placed", Version: 1, Payload: []byte(`{"Order":"o-17","Customer":"c-4"}`),
		},
	})
	fmt.Println(err)
	// Output:
	// reserve the goods of o-17
	// <nil>
}

// Handlers of one sink share its settings: the order of keys, the parallelism and the retries.
func ExampleMux() {
	types := registry.New()
	err := errors.Join(
		registry.Register[OrderPlaced](types, "order.placed"),
		registry.Register[OrderShipped](types, "order.shipped"),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	sink := function.Mux(types,
		function.On(func(_ context.Context, o OrderPlaced) error {
			fmt.Println("reserve the goods of", o.Order)
			return nil
		}),
		function.OnDelivery(func(_ context.Context, d *notification.Delivery, o OrderShipped) error {
			fmt.Println("tell the customer of", o.Order, "once, by the id", d.ID)
			return nil
		}),
	)

	for _, e := range []*notification.Envelope{
		{ID: "1", Type: "order.placed", Version: 1, Payload: []byte(`{"Order":"o-17"}`)},
		{ID: "2", Type: "order.shipped", Version: 1, Payload: []byte(`{"Order":"o-17"}`)},
	} {
		if _, err := sink.Deliver(context.Background(), &notification.Delivery{Envelope: e}); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// reserve the goods of o-17
	// tell the customer of o-17 once, by the id 2
}
