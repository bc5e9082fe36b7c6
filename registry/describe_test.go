package registry_test

import (
	"math"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/registry"
)

type bill struct {
	Total float64 `json:"total"`
}

type oldBill struct{ Sum int }

func fromOldBill(o oldBill) (*bill, error) { return &bill{float64(o.Sum)}, nil }

func TestATypeIsDescribed(t *testing.T) {
	t.Parallel()
	types := registry.New()
	about := registry.Description{Title: "Bill", Text: "Sent with each order.", Owner: "billing", Examples: []any{bill{1}, &bill{2}}}
	require.NoError(t, registry.Register[bill](types, "bill", registry.Describe(about), registry.Version(2), registry.Upcast(1, fromOldBill),
		registry.Aliases("invoice"), registry.JSONSchema(1, `{"type": "object"}`)))
	info, ok := types.Lookup("bill")
	require.True(t, ok)
	require.Equal(t, about, info.Description)
	want := []registry.TypeVersion{
		{Version: 1, GoType: reflect.TypeFor[oldBill](), JSONSchema: `{"type": "object"}`},
		{Version: 2, GoType: reflect.TypeFor[bill]()},
	}
	require.Equal(t, want, types.Versions("bill"))
	require.Equal(t, want, types.Versions("invoice"))
	require.Empty(t, types.Versions("parcel"))
}

func TestAWrongDescriptionIsAMistakeOfTheType(t *testing.T) {
	t.Parallel()
	for want, option := range map[string]registry.TypeOption{
		"example 2 is int; it must be registry_test.bill":                           registry.Describe(registry.Description{Examples: []any{bill{}, 7}}),
		"example 1 is <nil>":                                                        registry.Describe(registry.Description{Examples: []any{nil}}),
		"example 1: notification is nil":                                            registry.Describe(registry.Description{Examples: []any{(*bill)(nil)}}),
		"example 1: notification does not serialize":                                registry.Describe(registry.Description{Examples: []any{bill{math.NaN()}}}),
		"the JSON Schema of version 1 is not a JSON object: unexpected end":         registry.JSONSchema(1, "{"),
		"the JSON Schema of version 1 is not a JSON object: it is null":             registry.JSONSchema(1, "null"),
		"there is a JSON Schema of version 2, but the versions are 1..1":            registry.JSONSchema(2, "{}"),
		"the JSON Schema of version 1 is not a JSON object: json: cannot unmarshal": registry.JSONSchema(1, "[]"),
	} {
		types := registry.New()
		err := registry.Register[bill](types, "bill", option)
		require.ErrorIs(t, err, registry.ErrOption)
		require.ErrorContains(t, err, want)
		require.Empty(t, types.Types())
	}
}
