package main

import (
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/registry"
)

// OrderPlaced is version 2 of the notification. Version 1 had the amount in euros.
type OrderPlaced struct {
	Order    string `json:"order"`
	Email    string `json:"email"`
	Cents    int64  `json:"cents"`
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
			registry.Version(2), registry.Upcast(1, fromV1), registry.Aliases("OrderPlaced"), registry.Key(OrderPlaced.key)),
		registry.Register[AlarmRaised](types, "alarm.raised"),
	); err != nil {
		panic(fmt.Sprintf("types: %v", err))
	}
	return types
}
