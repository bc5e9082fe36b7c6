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

// gauge writes numbers that JSON cannot represent as null.
type gauge float64

func (g gauge) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(g)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(g))
}

type order struct {
	hidden   chan int
	Skipped  chan int  `json:"-"`
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

func TestJSONMarshalErrorNamesTypeAndField(t *testing.T) {
	t.Parallel()
	type loop struct {
		Next *loop
		Bad  func()
	}
	self := &loop{Bad: func() {}}
	self.Next = self
	for name, tc := range map[string]struct {
		value any
		wants []string
	}{
		"a number that JSON cannot represent": {
			&order{Raw: json.RawMessage("1"), Lines: []line{{}, {Price: &money{Amount: math.NaN()}}}},
			[]string{"serializer_test.order", "at Lines[1].Price.Amount", "NaN"},
		},
		"an infinite number in a map": {
			order{Raw: json.RawMessage("1"), Lines: []line{{Extra: map[string]any{"ok": 1.0, "weight": math.Inf(1)}}}},
			[]string{"serializer_test.order", "at Lines[0].Extra[weight]", "+Inf"},
		},
		"a type that JSON cannot represent": {
			&order{
				Raw:    json.RawMessage("1"),
				Lines:  []line{{Extra: map[string]any{"notify": make(chan int)}}},
				hidden: make(chan int), Skipped: make(chan int),
			},
			[]string{"serializer_test.order", "at Lines[0].Extra[notify]", "chan int"},
		},
		"a number next to one with MarshalJSON": {
			&struct{ Gauge, Weight any }{gauge(math.NaN()), math.NaN()},
			[]string{"at Weight: "},
		},
		"a value that contains itself": {self, []string{"serializer_test.loop"}},
		"the value itself":             {func() {}, []string{"marshal func() as JSON", "unsupported type"}},
		"invalid JSON":                 {order{Raw: json.RawMessage("{")}, []string{"serializer_test.order", "RawMessage"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := serializer.JSON{}.Marshal(tc.value)
			require.Nil(t, data)
			for _, want := range tc.wants {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestJSONMarshalErrorNamesTheFieldInValuesThatContainThemselves(t *testing.T) {
	t.Parallel()
	value := map[string]any{"bad": math.NaN()}
	value["self"] = value
	for range 50 { // the order of maps differs each time
		_, err := serializer.JSON{}.Marshal(value)
		require.ErrorContains(t, err, "at [bad]: ")
	}
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
