package encoding_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/encoding"
)

// BenchmarkEncode encodes payloads of 400 bytes. JSON Schema is left out: nearly all its time is Validate's.
func BenchmarkEncode(b *testing.B) {
	for name, payload := range map[string]string{
		"text":  fmt.Sprintf(`{"id": 12345, "total": 12.5, "note": %q}`, strings.Repeat("some text ", 37)),
		"lines": `{"id": 12345, "total": 12.5, "lines": [` + strings.Repeat(`{"sku": "a-100", "count": 3}, `, 12) + `{"sku": "b", "count": 1}]}`,
	} {
		for _, format := range []string{encoding.FormatAvro, encoding.FormatProtobuf} {
			b.Run(format+"/"+name, func(b *testing.B) {
				e := newEncoder(b, orders(), newRegistry(b), format)
				n := order(payload)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := e.Encode(b.Context(), "orders", n); err != nil {
						require.NoError(b, err)
					}
				}
			})
		}
	}
}
