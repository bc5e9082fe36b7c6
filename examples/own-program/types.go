package main

import (
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/registry"
)

// OrderPlaced is the notification. Version 1 had its amount as a number of euros.
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

// AlarmRaised is a page for someone.
type AlarmRaised struct {
	Whom string `json:"whom"`
	What string `json:"what"`
}

func (o OrderPlaced) key() string { return o.Order }

// types are those that the shop publishes. They are fixed when the program is written, so
// what is wrong with them is a defect of it.
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
