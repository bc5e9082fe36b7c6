package demo

import (
	"errors"

	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/registry"
)

// The types of the shop's notifications.
const (
	customerSignedUp = "customer.signed-up"
	orderPlaced      = "order.placed"
	stockReserved    = "stock.reserved"
)

// routes has the sinks of each type.
var routes = route.Routes{
	customerSignedUp: route.To(kafkaSink, mailSink),
	orderPlaced:      route.To(kafkaSink, httpSink, mailSink),
	stockReserved:    route.To(kafkaSink),
}

// Customer is a part of notifications for customers.
type Customer struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Email string `json:"email"`
}

// CustomerSignedUp is the first notification of each customer. Its key is the customer, so it is
// delivered before the customer's orders.
type CustomerSignedUp struct {
	Customer Customer `json:"customer"`
}

// OrderPlaced also has the customer as its key, so a customer's orders are delivered in order.
type OrderPlaced struct {
	Order    string   `json:"order"`
	Customer Customer `json:"customer"`
	Item     string   `json:"item"`
	Quantity int      `json:"quantity"`
}

// StockReserved has no key: the order of reservations does not matter.
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
