package contract_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/registry"
)

type order struct {
	ID     string            `json:"id"`
	Email  string            `json:"email" jsonschema:"format=email"`
	Lines  []Money           `json:"lines"`
	Labels map[string]string `json:"labels,omitempty"`
}

// What a check of a payload costs, beside decoding it.
func BenchmarkValidate(b *testing.B) {
	types := registry.New()
	require.NoError(b, registry.Register[order](types, "order.placed"))
	set, err := contract.FromTypes(types)
	require.NoError(b, err)
	payload, err := json.Marshal(order{"o-1", "ada@example.com", []Money{{1, "EUR"}, {2, "USD"}, {3, "EUR"}}, map[string]string{"a": "b"}})
	require.NoError(b, err)
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			var v any
			require.NoError(b, json.Unmarshal(payload, &v))
		}
	})
	b.Run("validate", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, set.Validate("order.placed", 1, payload))
		}
	})
}
