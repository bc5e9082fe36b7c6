package serializer_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/serializer"
	"github.com/waybill-go/waybill/serializer/serializertest"
)

type money struct {
	Amount   float64
	Currency string
}

type line struct {
	SKU   string         `json:"sku"`
	Price *money         `json:"price"`
	Extra map[string]any `json:"extra,omitempty"`
}

type order struct {
	ID       string    `json:"id"`
	PlacedAt time.Time `json:"placed_at"`
	Lines    []line    `json:"lines"`
	Raw      json.RawMessage
	Bytes    []byte
}

func TestJSONConformance(t *testing.T) {
	t.Parallel()
	serializertest.Run(t, serializer.JSON{}, serializertest.Fixture{
		Samples: []any{
			&order{
				ID:       "o-1",
				PlacedAt: time.Date(2026, 3, 1, 12, 30, 0, 123456000, time.UTC),
				Lines:    []line{{SKU: "a<b>&c", Price: &money{9.95, "EUR"}, Extra: map[string]any{"b": 1.5, "a": "ü", "c": nil}}},
				Raw:      json.RawMessage(`{"k":[1,2]}`),
				Bytes:    []byte{0, 1, 255},
			},
			&order{ID: "o-2", Lines: []line{}, Raw: json.RawMessage(`null`)},
			&map[string]int{"b": 2, "a": 1, "c": 3},
		},
		Unserializable: &struct{ C chan int }{},
		Garbage:        []byte(`{"id":`),
	})
}

func TestJSONKeepsHTMLCharactersAndAddsNoNewline(t *testing.T) {
	t.Parallel()
	data, err := serializer.JSON{}.Marshal(map[string]string{"html": "<a href='?x=1&y=2'>"})
	require.NoError(t, err)
	require.Equal(t, `{"html":"<a href='?x=1&y=2'>"}`, string(data))
}

func TestJSONMarshalErrorNamesTheType(t *testing.T) {
	t.Parallel()
	data, err := serializer.JSON{}.Marshal(&order{Raw: json.RawMessage("1"), Lines: []line{{Price: &money{Amount: math.NaN()}}}})
	require.Nil(t, data)
	require.ErrorContains(t, err, "serializer_test.order")
	require.ErrorContains(t, err, "NaN")
}

func TestJSONMarshalErrorDoesNotAffectTheNextCall(t *testing.T) {
	t.Parallel()
	for range 100 {
		_, err := serializer.JSON{}.Marshal([]any{"begun", func() {}})
		require.Error(t, err)
		data, err := serializer.JSON{}.Marshal("whole")
		require.NoError(t, err)
		require.Equal(t, `"whole"`, string(data))
	}
}

func TestJSONUnmarshalErrorNamesTypeAndPosition(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		data  string
		wants []string
	}{
		"a field of another type": {
			`{"id":"o-1","lines":[{"sku":"a","price":{"Amount":"9.95"}}]}`,
			[]string{"serializer_test.order", "lines.price.Amount", "string"},
		},
		"a truncated text":          {`{"id":"o-1"`, []string{"serializer_test.order", "at byte 11 of 11"}},
		"nothing":                   {``, []string{"serializer_test.order", "at byte 0 of 0"}},
		"a second text":             {`{} {}`, []string{"serializer_test.order", "at byte 4 of 5"}},
		"an impossible time":        {`{"placed_at":"yesterday"}`, []string{"serializer_test.order", "yesterday"}},
		"a text in another charset": {"\xff\xfe{}", []string{"serializer_test.order", "at byte 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := serializer.JSON{}.Unmarshal([]byte(tc.data), new(order))
			for _, want := range tc.wants {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestJSONIgnoresUnknownFields(t *testing.T) {
	t.Parallel()
	var got money
	require.NoError(t, serializer.JSON{}.Unmarshal([]byte(`{"Currency":"EUR","Rounding":"up"}`), &got))
	require.Equal(t, money{Currency: "EUR"}, got)
}
