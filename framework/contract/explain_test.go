package contract_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/registry"
)

func TestFaultsAreNamedByPointersWithoutValues(t *testing.T) {
	t.Parallel()
	set := new(contract.Set)
	require.NoError(t, set.Add(contract.About{Type: "t", Version: 1}, []byte(`{"type": "object", "additionalProperties": false, "properties": {
		"a/b~c": {"type": "string", "pattern": "^x"}, "at": {"type": "string", "format": "date-time"}, "n": {"type": "integer", "maximum": 9007199254740993},
		"l": {"type": "array", "items": {"const": 1}, "uniqueItems": true}, "b": {"type": "string", "contentEncoding": "base64"}, "no": false}}`)))
	require.NoError(t, set.Validate("t", 1, []byte(`{"n": 9007199254740993}`)))
	for payload, want := range map[string]string{
		`{"a/b~c": "secret"}`:          "/a~1b~0c breaks pattern ^x",
		`{"at": "secret"}`:             "/at is not of the format date-time",
		`{"n": 9007199254740994}`:      "/n breaks maximum",
		`{"n": 1.5}`:                   "/n is number, want integer",
		`{"l": ["secret"]}`:            "/l/0 breaks const 1",
		`{"b": "secret!"}`:             "/b breaks contentEncoding base64",
		`{"no": "secret"}`:             "/no is not allowed",
		`[]`:                           "/ is array, want object",
		`{"x": 1} {"secret": 2}`:       "is not JSON",
		`{"l": [2, 3, 4, 5, 6, 7, 8]}`: "and 2 more",
	} {
		err := set.Validate("t", 1, []byte(payload))
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestPayloadsThatAreExpensiveToJudgeAreRefused(t *testing.T) {
	t.Parallel()
	set := new(contract.Set)
	require.NoError(t, set.Add(contract.About{Type: "t", Version: 1}, []byte(`{"properties": {"n": {"type": "integer"}, "m": {"type": "number", "minimum": 0, "multipleOf": 0.5}, "next": {"$ref": "#"}}}`)))
	for payload, want := range map[string]string{
		`{"n": 1e1000000}`:                         "it has a number that is too long or too large",
		`{"m": 1e999999999}`:                       "it has a number that is too long or too large",
		`{"m": [1, -1e-999999999]}`:                "it has a number that is too long or too large",
		`{"m": ` + strings.Repeat("9", 2000) + `}`: "it has a number that is too long or too large",
		strings.Repeat(`{"next": `, 600) + `7` + strings.Repeat(`}`, 600): "it is nested more than 500 times",
		"{\"n\": \"\xff\"}": "it is not UTF-8",
	} {
		require.ErrorContains(t, set.Validate("t", 1, []byte(payload)), want)
	}
}

func TestNamesThatAreDataAreNotInFaults(t *testing.T) {
	t.Parallel()
	set := new(contract.Set)
	require.NoError(t, set.Add(contract.About{Type: "t", Version: 1}, []byte(`{"properties": {"by": {"additionalProperties": {"type": "integer"}}, "of": {"additionalProperties": false, "properties": {"a": {}}}}}`)))
	err := set.Validate("t", 1, []byte(`{"by": {"ada@example.com\n\u001b[31m": "x"}, "of": {"totl": 1, "ada@example.com": 2, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "`+strings.Repeat("x", 100)+`": 3}}`))
	require.EqualError(t, err, "the payload does not fit the schema of t v1: /by/* is string, want integer; /of has unknown fields: *, b, c, d, e, and 3 more")
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
