package protobuf_test

import (
	"fmt"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/waybill-go/waybill/serializer/protobuf"
)

// Payloads in ProtoJSON fit a json column.
func ExampleJSON() {
	payload, err := protobuf.JSON{}.Marshal(wrapperspb.Int64(9007199254740993))
	fmt.Println(string(payload), err)

	var read wrapperspb.Int64Value
	err = protobuf.JSON{}.Unmarshal(payload, &read)
	fmt.Println(read.GetValue(), err)
	// Output:
	// "9007199254740993" <nil>
	// 9007199254740993 <nil>
}
