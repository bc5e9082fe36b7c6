package registry_test

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/serializer/protobuf"
)

type OrderPlaced struct {
	OrderID    string `json:"order_id"`
	CustomerID string `json:"customer_id"`
}

type OrderShipped struct {
	OrderID string `json:"order_id"`
}

func ExampleRegister() {
	types := registry.New()
	err := errors.Join(
		registry.Register[OrderPlaced](types, "order.placed"),
		registry.Register[OrderShipped](types, "order.shipped", registry.Aliases("order.sent")),
	)
	if err != nil {
		fmt.Println(err)
		return
	}

	envelope, err := types.Encode(OrderPlaced{OrderID: "o-1", CustomerID: "c-7"})
	fmt.Println(envelope.Type, string(envelope.Payload), err)

	notified, err := types.Decode(envelope)
	fmt.Printf("%+v %v\n", notified, err)

	for _, info := range types.Types() {
		fmt.Println(info.Name, info.GoType, info.Version, info.ContentType)
	}
	// Output:
	// order.placed {"order_id":"o-1","customer_id":"c-7"} <nil>
	// {OrderID:o-1 CustomerID:c-7} <nil>
	// order.placed registry_test.OrderPlaced 1 application/json
	// order.shipped registry_test.OrderShipped 1 application/json
}

// Version 1 had one field for the name; version 2 has two.
type (
	CustomerRenamedV1 struct {
		Name string `json:"name"`
	}
	CustomerRenamed struct {
		First string `json:"first"`
		Last  string `json:"last"`
	}
)

func ExampleUpcast() {
	types := registry.New()
	err := registry.Register[CustomerRenamed](types, "customer.renamed",
		registry.Version(2),
		registry.Upcast(1, func(old CustomerRenamedV1) (CustomerRenamed, error) {
			first, last, _ := strings.Cut(old.Name, " ")
			return CustomerRenamed{First: first, Last: last}, nil
		}),
	)
	if err != nil {
		fmt.Println(err)
		return
	}

	stored := &notification.Envelope{Type: "customer.renamed", Version: 1, Payload: []byte(`{"name":"Ada Lovelace"}`)}
	renamed, err := registry.Decode[CustomerRenamed](types, stored)
	fmt.Printf("%+v %v\n", renamed, err)
	// Output: {First:Ada Last:Lovelace} <nil>
}

func ExampleUpcast_gap() {
	types := registry.New()
	err := registry.Register[CustomerRenamed](types, "customer.renamed",
		registry.Version(3),
		registry.Upcast(1, func(old CustomerRenamedV1) (CustomerRenamed, error) { return CustomerRenamed{}, nil }),
	)
	fmt.Println(err)
	// Output: register registry_test.CustomerRenamed as "customer.renamed": upcasters do not fit the versions: version 3 needs an upcaster from each version since 1; missing [2]: add registry.Upcast(2, …), or registry.Oldest(3) if no older version is stored
}

func ExampleKey() {
	types := registry.New()
	err := registry.Register[OrderPlaced](types, "order.placed",
		registry.Key(func(o OrderPlaced) string { return o.CustomerID }))
	if err != nil {
		fmt.Println(err)
		return
	}

	envelope, err := types.Encode(&OrderPlaced{OrderID: "o-1", CustomerID: "c-7"})
	fmt.Println(envelope.Key, err)
	// Output: c-7 <nil>
}

func ExampleSerializer() {
	types := registry.New()
	err := registry.Register[*wrapperspb.StringValue](types, "order.named", registry.Serializer(protobuf.JSON{}))
	if err != nil {
		fmt.Println(err)
		return
	}

	envelope, err := types.Encode(wrapperspb.String("o-1"))
	fmt.Println(string(envelope.Payload), err)

	named, err := registry.Decode[*wrapperspb.StringValue](types, envelope)
	fmt.Println(named.GetValue(), err)
	// Output:
	// "o-1" <nil>
	// o-1 <nil>
}

func ExampleRegistry_Encode_unregistered() {
	_, err := registry.New().Encode(OrderPlaced{})
	fmt.Println(err)
	// Output: go type is not registered: registry_test.OrderPlaced; call registry.Register[registry_test.OrderPlaced](types, "order.placed") at the start of the program, or, in package waybill, waybill.Register[registry_test.OrderPlaced](o, "order.placed")
}
