package contract_test

import (
	"encoding/json"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/registry"
)

// Money is an amount in a currency.
type Money struct {
	// Cents is the amount.
	Cents    int64
	Currency string `jsonschema:"enum=EUR,enum=USD"` // by ISO 4217
}

type base struct {
	ID   string    `json:"id"`
	Made time.Time `json:"made"`
}

type optionalPart struct{ Note string }

type tree struct {
	Name     string           `json:"name"`
	Children []*tree          `json:"children"`
	By       map[string]*tree `json:"by,omitempty"`
}

type everything struct {
	base
	*optionalPart
	Total   Money           `json:"total"`
	Also    *Money          `json:"also"`
	Maybe   *Money          `json:"maybe,omitempty"`
	Lines   []Money         `json:"lines"`
	Labels  map[string]int8 `json:"labels"`
	ByDay   map[int]string  `json:"by_day"`
	Raw     json.RawMessage `json:"raw"`
	Any     any             `json:"any"`
	Big     *big.Int        `json:"big"`
	Blob    []byte          `json:"blob"`
	Four    [4]uint16       `json:"four"`
	Quoted  int             `json:"quoted,string"`
	Zero    time.Time       `json:"zero,omitzero"`
	Always  Money           `json:"always,omitempty"`
	Hidden  string          `json:"-"`
	Tree    tree            `json:"tree"`
	private string
	Inner   struct{ A *int } `json:"inner"`
}

func schemaOf[T any](t *testing.T, options ...registry.TypeOption) string {
	t.Helper()
	types := registry.New()
	require.NoError(t, registry.Register[T](types, "it", options...))
	set, err := contract.FromTypes(types)
	require.NoError(t, err)
	c, ok := set.Of("it", 1)
	require.True(t, ok)
	return string(c.Text)
}

func TestADescriptionHasPrecedenceOverTheCommentOfTheGoTypeButNotOverAGivenSchema(t *testing.T) {
	t.Parallel()
	require.Contains(t, schemaOf[Money](t), `"description": "Money is an amount in a currency."`)
	described := registry.Describe(registry.Description{Title: "Amount", Text: "It is paid."})
	require.Contains(t, schemaOf[Money](t, described), `"title": "Amount",
  "description": "It is paid.",
  "x-waybill": {`)
	given := registry.JSONSchema(1, `{"description": "Given.", "type": "object"}`)
	require.Contains(t, schemaOf[Money](t, described, given), `"title": "Amount",
  "description": "Given.",
  "x-waybill": {`)
}

func TestATypeWithoutANameIsDescribedAsOneWithAName(t *testing.T) {
	t.Parallel()
	type named struct {
		ID    *string  `json:"id"`
		Lines []*Money `json:"lines"`
		Note  string   `json:"note,omitempty"`
		Zero  [1]int   `json:"zero,omitempty"`
	}
	require.Equal(t, schemaOf[named](t), schemaOf[struct {
		ID    *string  `json:"id"`
		Lines []*Money `json:"lines"`
		Note  string   `json:"note,omitempty"`
		Zero  [1]int   `json:"zero,omitempty"`
	}](t))
	type list []*string
	require.Equal(t, schemaOf[list](t), schemaOf[[]*string](t))
	type byDay map[int]*string
	require.Equal(t, schemaOf[byDay](t), schemaOf[map[int]*string](t))
}

func TestAnErrorNamesTheFaultsOfAPayloadInOrder(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[struct{ A, B, C, D, E, F, G int }](types, "it"))
	set, err := contract.FromTypes(types)
	require.NoError(t, err)
	for range 20 {
		err := set.Validate("it", 1, []byte(`{"G": "", "F": "", "E": "", "D": "", "C": "", "B": "", "A": ""}`))
		require.EqualError(t, err, "the payload does not fit the schema of it v1: /A is string, want integer; /B is string, want integer; "+
			"/C is string, want integer; /D is string, want integer; /E is string, want integer; and 2 more")
	}
}
