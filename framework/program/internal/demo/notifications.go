package demo

import (
	"errors"

	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/registry"
)

// Names of the shop's notifications.
const (
	customerSignedUp = "customer.signed-up"
	orderPlaced      = "order.placed"
	stockReserved    = "stock.reserved"
)

// routes say who hears of what.
var routes = route.Routes{
	customerSignedUp: route.To(kafkaSink, mailSink),
	orderPlaced:      route.To(kafkaSink, httpSink, mailSink),
	stockReserved:    route.To(kafkaSink),
}

// Customer is part of what customers hear.
type Customer struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Email string `json:"email"`
}

// CustomerSignedUp is the first notification of each customer: its key is the
// customer, so the welcome comes before all news of orders.
type CustomerSignedUp struct {
	Customer Customer `json:"customer"`
}

// OrderPlaced has the customer as its key too: a customer hears of orders in the
// order in which they were placed.
type OrderPlaced struct {
	Order    string   `json:"order"`
	Customer Customer `json:"customer"`
	Item     string   `json:"item"`
	Quantity int      `json:"quantity"`
}

// StockReserved has no key: it does not matter which reservation is heard of first.
type StockReserved struct {
	Order    string `json:"order"`
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
}

// newTypes registers the shop's notifications.
func newTypes() (*registry.Registry, error) {
	types := registry.New()
	return types, errors.Join(
		registry.Register[CustomerSignedUp](types, customerSignedUp,
			registry.Key(func(n CustomerSignedUp) string { return n.Customer.ID })),
		registry.Register[OrderPlaced](types, orderPlaced,
			registry.Key(func(n OrderPlaced) string { return n.Customer.ID })),
		registry.Register[StockReserved](types, stockReserved),
	)
}
