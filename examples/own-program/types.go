package main

import (
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/registry"
)

// OrderPlaced is version 2 of the notification. Version 1 had the amount in euros.
type OrderPlaced struct {
	Order string `json:"order"`
	// Email is the address of the customer.
	Email string `json:"email" jsonschema:"format=email"`
	Cents int64  `json:"cents"`
	// Currency is a code of ISO 4217.
	Currency string `json:"currency"`
}

type orderPlacedV1 struct {
	Order string  `json:"order"`
	Email string  `json:"email"`
	Euros float64 `json:"euros"`
}

func fromV1(o orderPlacedV1) (OrderPlaced, error) {
	return OrderPlaced{Order: o.Order, Email: o.Email, Cents: int64(o.Euros*100 + 0.5), Currency: "EUR"}, nil
}

// AlarmRaised is a notification that the desk must page to a person.
type AlarmRaised struct {
	Whom string `json:"whom"`
	What string `json:"what"`
}

func (o OrderPlaced) key() string { return o.Order }

// types returns the types that the shop publishes. A mistake in them is a defect of the program, so
// it panics.
func types() *registry.Registry {
	types := registry.New()
	if err := errors.Join(
		registry.Register[OrderPlaced](types, "order.placed",
			registry.Version(2), registry.Upcast(1, fromV1), registry.Aliases("OrderPlaced"), registry.Key(OrderPlaced.key),
			registry.Describe(registry.Description{
				Title: "Order placed", Owner: "shop@example.com",
				Text:     "A customer has placed an order. It is not paid yet.",
				Examples: []any{OrderPlaced{Order: "o-17", Email: "ada@example.com", Cents: 1999, Currency: "EUR"}},
			})),
		registry.Register[AlarmRaised](types, "alarm.raised",
			registry.Describe(registry.Description{
				Title: "Alarm raised", Owner: "house@example.com",
				Text:     "Something in the house needs a person at once.",
				Examples: []any{AlarmRaised{Whom: "alice", What: "the cellar is wet"}},
			})),
	); err != nil {
		panic(fmt.Sprintf("types: %v", err))
	}
	return types
}
