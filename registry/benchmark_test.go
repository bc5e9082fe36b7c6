package registry_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
)

var sample = orderPlaced{OrderID: "0198a7c2-5b1e-7000-8000-000000000001", CustomerID: "c-7", Cents: 129_900}

// measure measures a call that may not fail.
func measure[T any](b *testing.B, call func() (T, error)) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := call(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	types := shop(b)
	for name, v := range map[string]any{"value": sample, "pointer": &sample} {
		b.Run(name, func(b *testing.B) {
			measure(b, func() (*notification.Envelope, error) { return types.Encode(v) })
		})
	}
}

// A contract costs the publisher nothing: it is made by those who ask for it.
func BenchmarkEncodeOfADescribedType(b *testing.B) {
	for name, options := range map[string][]registry.TypeOption{
		"plain": nil,
		"described": {
			registry.Describe(registry.Description{Title: "Order", Text: "An order was placed.", Examples: []any{sample}}),
			registry.JSONSchema(1, `{"type": "object"}`),
		},
	} {
		types := registry.New()
		require.NoError(b, registry.Register[orderPlaced](types, "order.placed", options...))
		b.Run(name, func(b *testing.B) {
			measure(b, func() (*notification.Envelope, error) { return types.Encode(&sample) })
		})
	}
}

func BenchmarkEncodeParallel(b *testing.B) {
	types := shop(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := types.Encode(&sample); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	types := shop(b)
	e, err := types.Encode(sample)
	require.NoError(b, err)
	b.Run("any", func(b *testing.B) { measure(b, func() (any, error) { return types.Decode(e) }) })
	b.Run("typed", func(b *testing.B) {
		measure(b, func() (orderPlaced, error) { return registry.Decode[orderPlaced](types, e) })
	})
}

func BenchmarkDecodeUpcast(b *testing.B) {
	types := registry.New()
	require.NoError(b, registry.Register[customerMoved](types, "customer.moved", registry.Version(3),
		registry.Upcast(1, splitAddress), registry.Upcast(2, addTag)))
	e := &notification.Envelope{Type: "customer.moved", Version: 1, Payload: []byte(`{"address":"Main St 1, Graz"}`)}
	measure(b, func() (customerMoved, error) { return registry.Decode[customerMoved](types, e) })
}
