package registry_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
)

var sample = orderPlaced{OrderID: "0198a7c2-5b1e-7000-8000-000000000001", CustomerID: "c-7", Cents: 129_900}

func BenchmarkEncode(b *testing.B) {
	types := shop(b)
	for name, v := range map[string]any{"value": sample, "pointer": &sample} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := types.Encode(v); err != nil {
					b.Fatal(err)
				}
			}
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
	b.Run("any", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := types.Decode(e); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("typed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := registry.Decode[orderPlaced](types, e); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDecodeUpcast(b *testing.B) {
	types := registry.New()
	require.NoError(b, registry.Register[customerMoved](types, "customer.moved", registry.Version(3),
		registry.Upcast(1, splitAddress), registry.Upcast(2, addTag)))
	e := &notification.Envelope{Type: "customer.moved", Version: 1, Payload: []byte(`{"address":"Main St 1, Graz"}`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := registry.Decode[customerMoved](types, e); err != nil {
			b.Fatal(err)
		}
	}
}
