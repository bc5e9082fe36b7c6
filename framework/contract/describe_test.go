package contract_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"net/url"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/invopop/jsonschema"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/serializer/protobuf"
)

// Money is an amount in a currency.
//
// This paragraph is not in the schema.
type Money struct {
	// Cents is the amount.
	Cents    int64
	Currency string `jsonschema:"enum=EUR,enum=USD"` // by ISO 4217
}

type base struct {
	ID   string    `json:"id"` // of the order
	Made time.Time `json:"made"`
}

type optionalPart struct{ Note string }

type tree struct {
	Name     string           `json:"name"`
	Children []*tree          `json:"children"`
	By       map[string]*tree `json:"by,omitempty"`
}

type list []list

type (
	flag  bool
	lines []Money
	parts []Embedded
)

type everything struct {
	base
	*optionalPart
	Total  Money            `json:"total" jsonschema:"title=Total,description=Without tax"`
	Also   *Money           `json:"also"`
	Maybe  *Money           `json:"maybe,omitempty"`
	Lines  lines            `json:"lines"`
	Labels map[string]int8  `json:"labels"`
	ByDay  map[int]*string  `json:"by_day"`
	Raw    json.RawMessage  `json:"raw"`
	Any    any              `json:"any"`
	Big    *big.Int         `json:"big"`
	Blob   []byte           `json:"blob"`
	Four   [4]uint16        `json:"four"`
	Quoted *int8            `json:"quoted,string"`
	Zero   time.Time        `json:"zero,omitzero"`
	Always Money            `json:"always,omitempty"`
	UUID   uuid.UUID        `json:"uuid"`
	Wait   time.Duration    `json:"wait"`
	Number json.Number      `json:"number"`
	Float  float32          `json:"float"`
	Flag   flag             `json:"flag"`
	Mail   string           `json:"mail" jsonschema:"format=email"`
	Hidden string           `json:"-"`
	Dash   string           `json:"-,"` //nolint:staticcheck // its name is -
	Tree   tree             `json:"tree"`
	List   list             `json:"list"`
	Page   page[Money]      `json:"page"`
	Inner  struct{ A *int } `json:"inner"`
	_      int
}

type page[T any] struct{ Items []T }

func schemaOf[T any](t *testing.T, options ...registry.TypeOption) *contract.Contract {
	t.Helper()
	types := registry.New()
	require.NoError(t, registry.Register[T](types, "it", options...))
	set, err := contract.FromTypes(types)
	require.NoError(t, err)
	c, ok := set.Of("it", 1)
	require.True(t, ok)
	return c
}

func TestASchemaHasWhatEncodingJSONWrites(t *testing.T) {
	t.Parallel()
	example := everything{Total: Money{1, "EUR"}, Always: Money{2, "USD"}, Lines: lines{{3, "EUR"}}, Mail: "a@example.com", Number: "1"}
	c := schemaOf[everything](t, registry.Key(func(e everything) string { return e.ID }),
		registry.Describe(registry.Description{Title: "Everything", Text: "All that there is.", Owner: "orders@example.com", Examples: []any{example, &example}}))
	const golden = "testdata/everything.json"
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(golden, c.Text, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), string(c.Text), "set UPDATE to write it")
	require.Equal(t, "Everything", c.Title())
	require.Equal(t, "All that there is.", c.Description())
	require.Len(t, c.Examples(), 2)
	require.Equal(t, contract.About{Type: "it", Version: 1, Key: true, Owner: "orders@example.com"}, c.About)
}

// fill fills a value at random, with nil for about every second thing that may be nil.
func fill(t *rapid.T, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if depth > 0 && rapid.Bool().Draw(t, "is") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem(), depth-1)
		}
	case reflect.Slice:
		if depth > 0 && rapid.Bool().Draw(t, "is") {
			v.Set(reflect.MakeSlice(v.Type(), rapid.IntRange(0, 2).Draw(t, "n"), 2))
			for i := range v.Len() {
				fill(t, v.Index(i), depth-1)
			}
		}
	case reflect.Map:
		if depth > 0 && rapid.Bool().Draw(t, "is") {
			v.Set(reflect.MakeMap(v.Type()))
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(t, key, depth-1)
			fill(t, value, depth-1)
			v.SetMapIndex(key, value)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i), depth)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				fill(t, f, depth)
			}
		}
	case reflect.String:
		v.SetString(rapid.SampledFrom([]string{"", "EUR", "Größe"}).Draw(t, "text"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "flag"))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(float32(rapid.Float32Range(-1e9, 1e9).Draw(t, "float"))))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, "integer") >> (64 - v.Type().Bits()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, "integer") >> (64 - v.Type().Bits()))
	case reflect.Interface:
		v.Set(reflect.ValueOf(rapid.SampledFrom([]any{1, "a", []int{1}}).Draw(t, "any")))
	}
}

// Embedded and Deeper are promoted into the types that the test makes.
type Embedded struct {
	Deeper
	Shared string `json:"shared"`
	Kept   *int
}

type Deeper struct {
	Shared int    `json:"shared"`
	Tagged string `json:"Kept"`
	Own    []bool `json:"own,omitempty"`
}

// Both has two fields with one name, of which neither is written.
type Both struct {
	Embedded
	*Other
}

type Other struct {
	Shared bool `json:"shared"`
	Kept   int
}

func TestWhateverAProgramMarshalsFitsItsSchema(t *testing.T) {
	t.Parallel()
	elements := []reflect.Type{
		reflect.TypeFor[int8](), reflect.TypeFor[uint32](), reflect.TypeFor[int64](), reflect.TypeFor[uint64](), reflect.TypeFor[string](), reflect.TypeFor[bool](), reflect.TypeFor[float64](),
		reflect.TypeFor[any](), reflect.TypeFor[[]byte](), reflect.TypeFor[Embedded](), reflect.TypeFor[Both](), reflect.TypeFor[tree](), reflect.TypeFor[list](), reflect.TypeFor[time.Duration](),
		reflect.TypeFor[parts](), reflect.TypeFor[page[*int]](), reflect.TypeFor[page[string]](), reflect.TypeFor[flag](),
	}
	types := rapid.Custom(func(t *rapid.T) reflect.Type {
		of := rapid.SampledFrom(elements).Draw(t, "element")
		for range rapid.IntRange(0, 2).Draw(t, "wrapped") {
			switch rapid.IntRange(0, 4).Draw(t, "how") {
			case 0:
				of = reflect.PointerTo(of)
			case 1:
				of = reflect.SliceOf(of)
			case 2:
				of = reflect.MapOf(reflect.TypeFor[string](), of)
			case 3:
				of = reflect.MapOf(reflect.TypeFor[int16](), of)
			case 4:
				of = reflect.ArrayOf(rapid.IntRange(0, 2).Draw(t, "length"), of)
			}
		}
		return of
	})
	rapid.Check(t, func(t *rapid.T) {
		var fields []reflect.StructField
		for i := range rapid.IntRange(1, 6).Draw(t, "fields") {
			tag := rapid.SampledFrom([]string{``, `json:"x"`, `json:",omitempty"`, `json:",omitzero"`, `json:",string"`, `json:"x,omitempty"`, `json:"-"`}).Draw(t, "tag")
			fields = append(fields, reflect.StructField{Name: string(rune('A' + i)), Type: types.Draw(t, "type"), Tag: reflect.StructTag(tag)})
		}
		of := reflect.StructOf(fields)
		c, err := contract.DescribeType(of)
		if err != nil {
			t.Fatalf("%s: %v", of, err)
		}
		v := reflect.New(of)
		fill(t, v.Elem(), 3)
		payload, err := json.Marshal(v.Interface())
		if err != nil {
			t.Fatalf("%s: %v", of, err)
		}
		if err := c.Validate(payload); err != nil {
			t.Fatalf("%s\n%s\n%s: %v", of, c.Text, payload, err)
		}
		var written map[string]json.RawMessage
		var schema struct {
			Properties map[string]any
		}
		if err := errors.Join(json.Unmarshal(payload, &written), json.Unmarshal(c.Text, &schema)); err != nil {
			t.Fatal(err)
		}
		for name := range written {
			if schema.Properties[name] == nil {
				t.Fatalf("%s: the schema lacks the field %s of %s", of, name, payload)
			}
		}
	})
}

// amount writes itself, and says how.
type amount int

func (a amount) MarshalJSON() ([]byte, error) { return json.Marshal(map[string]int{"cents": int(a)}) }

func (amount) JSONSchema() *jsonschema.Schema {
	cents := jsonschema.NewProperties()
	cents.Set("cents", &jsonschema.Schema{Type: "integer"})
	return &jsonschema.Schema{Type: "object", Properties: cents, Required: []string{"cents"}}
}

// silent writes itself, and does not say how.
type silent struct{}

func (silent) MarshalJSON() ([]byte, error) { return []byte(`"s"`), nil }

func TestATypeThatWritesItselfSaysHow(t *testing.T) {
	t.Parallel()
	c := schemaOf[struct {
		A amount   `json:"a"`
		B *amount  `json:"b"`
		C []amount `json:"c,omitempty"`
	}](t)
	require.NoError(t, c.Validate([]byte(`{"a": {"cents": 1}, "b": null, "c": [{"cents": 2}]}`)))
	require.ErrorContains(t, c.Validate([]byte(`{"a": {}, "b": 1, "c": []}`)), "/a lacks cents; /b fits none of the alternatives")

	given := schemaOf[silent](t, registry.JSONSchema(1, `{"type": "string", "maxLength": 1}`))
	require.NoError(t, given.Validate([]byte(`"s"`)))
	require.ErrorContains(t, given.Validate([]byte(`"secret"`)), "/ breaks maxLength 1")
}

// stateOf and jsonText have kinds that JSON could write, and write something else.
type stateOf int

func (stateOf) MarshalJSON() ([]byte, error) { return []byte(`"paid"`), nil }

type jsonText []byte

func (jsonText) MarshalJSON() ([]byte, error) { return []byte(`{"a": 1}`), nil }

func TestATagSaysWhatATypeOfAnotherModuleWrites(t *testing.T) {
	t.Parallel()
	c := schemaOf[struct {
		State stateOf  `json:"state" jsonschema:"type=string,enum=new,enum=paid"`
		Text  jsonText `json:"text" jsonschema:"type=object"`
		Also  *stateOf `json:"also" jsonschema:"type=string"`
	}](t)
	require.NoError(t, c.Validate([]byte(`{"state": "paid", "text": {"a": 1}, "also": null}`)))
	require.ErrorContains(t, c.Validate([]byte(`{"state": 1, "text": "e30=", "also": 2}`)), "/also is number, want null or string; /state ")
}

type loop *loop

type throughPointer struct{ A int }

func (*throughPointer) MarshalText() ([]byte, error) { return []byte("a"), nil }

func TestWhatHasNoSchemaIsNamed(t *testing.T) {
	t.Parallel()
	type hidden struct {
		C chan int `json:"-"`
	}
	for want, register := range map[string]func(*registry.Registry) error{
		`it v1: field lines[].done: chan struct {} cannot be JSON: leave the field out with the tag json:"-", or use another type`: func(r *registry.Registry) error {
			return registry.Register[struct {
				Lines []struct {
					Done chan struct{} `json:"done"`
				} `json:"lines"`
			}](r, "it")
		},
		`it v1: field F: func() cannot be JSON`: func(r *registry.Registry) error { return registry.Register[struct{ F func() }](r, "it") },
		`it v1: field loop: contract_test.loop points to itself: use another type`: func(r *registry.Registry) error {
			return registry.Register[struct {
				Loop loop `json:"loop"`
			}](r, "it")
		},
		`it v1: field ByName: map[string]contract_test.throughPointer has values that write themselves only through a pointer`: func(r *registry.Registry) error {
			return registry.Register[struct{ ByName map[string]throughPointer }](r, "it")
		},
		`it v1: field State: contract_test.stateOf has its own MarshalJSON`: func(r *registry.Registry) error {
			return registry.Register[struct{ State stateOf }](r, "it")
		},
		`it v1: field Text: contract_test.jsonText has its own MarshalJSON`: func(r *registry.Registry) error {
			return registry.Register[struct{ Text jsonText }](r, "it")
		},
		`it v1: field C: complex128 cannot be JSON`: func(r *registry.Registry) error {
			return registry.Register[struct{ C complex128 }](r, "it")
		},
		`it v1: field M: map[bool]int has keys that JSON cannot have: use texts or integers`: func(r *registry.Registry) error {
			return registry.Register[struct{ M map[bool]int }](r, "it")
		},
		`it v1: field at.*: contract_test.silent has its own MarshalJSON: give the field a tag such as jsonschema:"type=string", the type a method JSONSchema()`: func(r *registry.Registry) error {
			return registry.Register[struct {
				At map[string]silent `json:"at"`
			}](r, "it")
		},
		`it v1: the type: contract_test.silent has its own MarshalJSON`: func(r *registry.Registry) error { return registry.Register[silent](r, "it") },
		`it v1: field U: url.URL would be written as its parts: use a string`: func(r *registry.Registry) error {
			return registry.Register[struct{ U url.URL }](r, "it")
		},
		`it v1: example 1: the payload does not fit the schema of it v1: /Currency breaks enum [EUR USD]`: func(r *registry.Registry) error {
			return registry.Register[Money](r, "it", registry.Describe(registry.Description{Examples: []any{Money{}}}))
		},
		`it v1: it is not a JSON Schema (2020-12): /type breaks enum [array boolean`: func(r *registry.Registry) error {
			return registry.Register[Money](r, "it", registry.JSONSchema(1, `{"type": 7}`))
		},
	} {
		types := registry.New()
		require.NoError(t, errors.Join(register(types), registry.Register[hidden](types, "fine")))
		set, err := contract.FromTypes(types)
		require.ErrorIs(t, err, contract.ErrSchema)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, set.Validate("it", 1, []byte(`{}`)), want, "for those who need the schema of that type")
		require.NoError(t, set.Validate("fine", 1, []byte(`{}`)), "the others have theirs")
	}
}

func TestAllFaultsOfATypeAreNamed(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[struct {
		A chan int
		B func()
	}](types, "it"))
	_, err := contract.FromTypes(types)
	require.ErrorContains(t, err, "field A: ")
	require.ErrorContains(t, err, "field B: ")
}

type version1 struct{ Euros float64 }

func TestEachVersionOfATypeHasItsSchema(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[Money](types, "price.set", registry.Version(2), registry.Aliases("price"),
		registry.Upcast(1, func(v *version1) (Money, error) { return Money{int64(v.Euros * 100), "EUR"}, nil })))
	set, err := contract.FromTypes(types)
	require.NoError(t, err)
	require.Len(t, set.All(), 2)
	for _, name := range []string{"price.set", "price"} {
		require.NoError(t, set.Validate(name, 1, []byte(`{"Euros": 1.5}`)))
		require.ErrorContains(t, set.Validate(name, 2, []byte(`{"Euros": 1.5}`)), "lacks Cents, Currency")
	}
	old, _ := set.Of("price.set", 1)
	require.True(t, old.Former)
	require.Contains(t, string(old.Text), `"former": true`)
}

func TestPayloadsOfProtobufHaveNoJSONSchema(t *testing.T) {
	t.Parallel()
	binary := schemaOf[*wrapperspb.StringValue](t, registry.Serializer(protobuf.Serializer{}))
	require.Equal(t, "application/protobuf", binary.ContentType)
	require.NoError(t, binary.Validate([]byte{0xff}), "not checked")
	text := schemaOf[*wrapperspb.StringValue](t, registry.Serializer(protobuf.JSON{}))
	require.NoError(t, text.Validate([]byte(`"any"`)))
	require.ErrorContains(t, text.Validate([]byte(`{`)), "is not JSON")
}

func TestTypesWithOneNameHaveDefinitionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	type Money struct{ Euros float64 }
	c := schemaOf[struct {
		A Money
		B lines
	}](t)
	require.NoError(t, c.Validate([]byte(`{"A": {"Euros": 1}, "B": [{"Cents": 1, "Currency": "EUR"}]}`)))
	require.ErrorContains(t, c.Validate([]byte(`{"A": {"Cents": 1}, "B": [{"Euros": 1}]}`)), "/A lacks Euros; /B/0 lacks Cents, Currency")
}

func TestASchemaThatRefersToAnotherFileIsRefused(t *testing.T) {
	t.Parallel()
	for _, ref := range []string{"id.json", "common.json#/$defs/M", "/id.json", "https://example.com/id.json", "file:///id.json"} {
		set := new(contract.Set)
		err := set.Add(contract.About{Type: "t", Version: 1}, []byte(`{"properties": {"id": {"$ref": "`+ref+`"}}, "$defs": {"M": {}}}`))
		require.ErrorIs(t, err, contract.ErrSchema)
		require.ErrorContains(t, err, "is another document: put its definitions into $defs")
	}
	require.ErrorContains(t, new(contract.Set).Add(contract.About{Type: "t", Version: 1}, []byte(`{"$ref": "#"}`)), "it only refers to itself")
}

func TestContractsAreTheSameEachTime(t *testing.T) {
	t.Parallel()
	first := schemaOf[everything](t).Text
	for range 20 {
		require.True(t, bytes.Equal(first, schemaOf[everything](t).Text))
	}
	require.NotContains(t, string(first), "This paragraph")
	require.Equal(t, 1, strings.Count(string(first), "Money is an amount in a currency."))
}

func TestADescriptionHasPrecedenceOverTheCommentOfTheGoTypeButNotOverAGivenSchema(t *testing.T) {
	t.Parallel()
	require.Contains(t, string(schemaOf[Money](t).Text), `"description": "Money is an amount in a currency."`)
	described := registry.Describe(registry.Description{Title: "Amount", Text: "It is paid."})
	require.Contains(t, string(schemaOf[Money](t, described).Text), `"title": "Amount",
  "description": "It is paid.",
  "x-waybill": {`)
	given := registry.JSONSchema(1, `{"description": "Given.", "type": "object"}`)
	require.Contains(t, string(schemaOf[Money](t, described, given).Text), `"title": "Amount",
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
