package serializer_test

import (
	"fmt"

	"github.com/waybill-go/waybill/serializer"
)

func ExampleJSON() {
	type OrderPlaced struct {
		OrderID string `json:"order_id"`
		Note    string `json:"note"`
	}
	payload, err := serializer.JSON{}.Marshal(OrderPlaced{OrderID: "o-1", Note: "fish & chips"})
	fmt.Println(string(payload), err)
	// Output: {"order_id":"o-1","note":"fish & chips"} <nil>
}

func ExampleIsJSON() {
	fmt.Println(serializer.IsJSON("application/cloudevents+json; charset=utf-8"))
	fmt.Println(serializer.IsJSON("application/protobuf"))
	// Output:
	// true
	// false
}
