package contract_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/registry"
)

func setOf(t *testing.T, schema string) *contract.Set {
	t.Helper()
	set := new(contract.Set)
	require.NoError(t, set.Add(contract.About{Type: "order.placed", Version: 2}, []byte(schema)))
	return set
}

func textsOf(breaks []contract.Break) (texts []string) {
	for _, b := range breaks {
		texts = append(texts, b.Text)
	}
	return texts
}

// The rows of the table in docs/contracts.md, with a change as an example, and what breaks.
var rules = []struct {
	change            string
	before, after     string // members of an object's schema
	forward, backward string // "" if nothing breaks
}{
	{
		"a required field is added",
		`"properties": {"id": {"type": "string"}}, "required": ["id"]`,
		`"properties": {"id": {"type": "string"}, "total": {"type": "number"}}, "required": ["id", "total"]`,
		"",
		"field total of order.placed v2 is new and required: stored rows of v2 lack it",
	},
	{
		"an optional field is added",
		`"properties": {"id": {"type": "string"}}`,
		`"properties": {"id": {"type": "string"}, "note": {"type": "string"}}`,
		"", "",
	},
	{
		"a required field is removed or renamed",
		`"properties": {"id": {"type": "string"}, "total": {"type": "number"}}, "required": ["id", "total"]`,
		`"properties": {"id": {"type": "string"}, "sum": {"type": "number"}}, "required": ["id"]`,
		"field total of order.placed v2 was removed: consumers of v2 read it",
		"",
	},
	{
		"an optional field is removed",
		`"properties": {"id": {"type": "string"}, "note": {"type": "string"}}`,
		`"properties": {"id": {"type": "string"}}`,
		"", "",
	},
	{
		"a required field becomes optional",
		`"properties": {"total": {"type": "number"}}, "required": ["total"]`,
		`"properties": {"total": {"type": "number"}}`,
		"field total of order.placed v2 may now be left out: consumers of v2 read it",
		"",
	},
	{
		"an optional field becomes required",
		`"properties": {"total": {"type": "number"}}`,
		`"properties": {"total": {"type": "number"}}, "required": ["total"]`,
		"",
		"field total of order.placed v2 is now required: stored rows of v2 may lack it",
	},
	{
		"a field gets another type",
		`"properties": {"total": {"type": "number"}}`,
		`"properties": {"total": {"type": "string"}}`,
		"field total of order.placed v2 may now be string: consumers of v2 expect number",
		"field total of order.placed v2 may no longer be number: stored rows of v2 may have it",
	},
	{
		"an integer becomes a number",
		`"properties": {"total": {"type": "integer"}}`,
		`"properties": {"total": {"type": "number"}}`,
		"field total of order.placed v2 may now be number: consumers of v2 expect integer",
		"",
	},
	{
		"a field may also be null",
		`"properties": {"lines": {"type": "array", "items": {"$ref": "#/$defs/line"}}}, "$defs": {"line": {"type": "object"}}`,
		`"properties": {"lines": {"type": ["array", "null"], "items": {"type": "object"}}}`,
		"field lines of order.placed v2 may now be null: consumers of v2 expect array",
		"",
	},
	{
		"an enumeration gets a value",
		`"properties": {"state": {"enum": ["new", "paid"]}}`,
		`"properties": {"state": {"enum": ["new", "paid", "void"]}}`,
		"field state of order.placed v2 may now be void: consumers of v2 expect one of new and paid",
		"",
	},
	{
		"an enumeration loses a value",
		`"properties": {"state": {"enum": ["new", "paid"]}}`,
		`"properties": {"state": {"enum": ["paid"]}}`,
		"",
		"field state of order.placed v2 may no longer be new: stored rows of v2 may have it",
	},
	{
		"a limit becomes wider",
		`"properties": {"count": {"type": "integer", "maximum": 127}}`,
		`"properties": {"count": {"type": "integer", "maximum": 32767}}`,
		"field count of order.placed v2 has had maximum 127, which now is 32767: consumers of v2 rely on it",
		"",
	},
	{
		"a limit becomes narrower",
		`"properties": {"name": {"type": "string", "minLength": 1}}`,
		`"properties": {"name": {"type": "string", "minLength": 2}}`,
		"",
		"field name of order.placed v2 now has minLength 2: stored rows of v2 may exceed it",
	},
	{
		"a format or a pattern is added",
		`"properties": {"at": {"type": "string"}}`,
		`"properties": {"at": {"type": "string", "format": "date-time"}}`,
		"",
		"field at of order.placed v2 now has format date-time: stored rows of v2 may not fit",
	},
	{
		"a format or a pattern is removed or changed",
		`"properties": {"at": {"type": "string", "format": "date-time"}}`,
		`"properties": {"at": {"type": "string", "format": "date"}}`,
		"field at of order.placed v2 no longer has format date-time: consumers of v2 rely on it",
		"field at of order.placed v2 now has format date: stored rows of v2 may not fit",
	},
	{
		"an object whose fields were listed allows others",
		`"properties": {"id": {"type": "string"}}, "additionalProperties": false`,
		`"properties": {"id": {"type": "string"}}`,
		"the payload of order.placed v2 may now have other fields: consumers of v2 refuse them",
		"",
	},
	{
		"the same, inside of lists, maps and definitions",
		`"properties": {"lines": {"type": "array", "items": {"$ref": "#/$defs/line"}}, "by": {"additionalProperties": {"$ref": "#/$defs/line"}}}, "$defs": {"line": {"type": "object", "properties": {"price": {"type": "integer"}, "next": {"$ref": "#/$defs/line"}}, "required": ["price"]}}`,
		`"properties": {"lines": {"type": "array", "items": {"$ref": "#/$defs/row"}}, "by": {"additionalProperties": {"$ref": "#/$defs/line"}}}, "$defs": {"row": {"type": "object", "properties": {"next": {"$ref": "#/$defs/row"}}}, "line": {"type": "object", "properties": {"price": {"type": "integer"}, "next": {"$ref": "#/$defs/line"}}, "required": ["price"]}}`,
		"field lines[].price of order.placed v2 was removed: consumers of v2 read it",
		"",
	},
	{
		"an alternative (`anyOf`, `oneOf`) is added",
		`"properties": {"pay": {"anyOf": [{"type": "object", "properties": {"card": {"type": "string"}}, "required": ["card"]}, {"type": "null"}]}}`,
		`"properties": {"pay": {"anyOf": [{"type": "object", "properties": {"card": {"type": "string"}}, "required": ["card"]}, {"type": "null"}, {"type": "string"}]}}`,
		"field pay of order.placed v2 may now be string: consumers of v2 expect object or null",
		"",
	},
	{
		"a schema that is combined (`allOf`, beside `$ref`) allows more",
		`"properties": {"n": {"$ref": "#/$defs/n", "minimum": 5}, "a": {"allOf": [{"enum": ["x"]}, {"enum": ["x", "y"]}]}}, "allOf": [{"properties": {"b": {"type": "integer"}}}, {"properties": {"b": {"description": "b"}}}], "$defs": {"n": {"type": "integer", "minimum": 0}}`,
		`"properties": {"n": {"$ref": "#/$defs/n"}, "a": {"enum": ["x"]}}, "allOf": [{"properties": {"b": {"type": "integer"}}}], "$defs": {"n": {"type": "integer", "minimum": 0}}`,
		"field n of order.placed v2 has had minimum 5, which now is 0: consumers of v2 rely on it",
		"",
	},
	{
		"a map becomes an object with fields",
		`"properties": {"by": {"type": "object", "additionalProperties": {"type": "integer"}}}`,
		`"properties": {"by": {"type": "object", "properties": {"a": {"type": "integer"}}}}`,
		"", "",
	},
	{
		"a rule of another keyword is removed or changed",
		`"properties": {"id": {"not": {"const": ""}}}`,
		`"properties": {"id": {"not": {"const": "0"}}}`,
		"field id of order.placed v2 no longer has not: consumers of v2 rely on it",
		"field id of order.placed v2 now has not: stored rows of v2 may not fit",
	},
}

func TestAChangeBreaksWhatTheRulesSay(t *testing.T) {
	t.Parallel()
	for _, r := range rules {
		t.Run(r.change, func(t *testing.T) {
			t.Parallel()
			before, after := setOf(t, `{"type": "object", `+r.before+`}`), setOf(t, `{"type": "object", `+r.after+`}`)
			var wantForward, wantBackward []string
			if r.forward != "" {
				wantForward = []string{r.forward + "; publish v3 with an upcaster, or set compat"}
			}
			if r.backward != "" {
				wantBackward = []string{r.backward + "; publish v3 with an upcaster, or set compat"}
			}
			require.Equal(t, wantForward, textsOf(contract.Compare(before, after, contract.Forward)))
			require.Equal(t, wantBackward, textsOf(contract.Compare(before, after, contract.Backward)))
			require.Equal(t, append(wantForward, wantBackward...), textsOf(contract.Compare(before, after, contract.Full)))
			require.Empty(t, contract.Compare(before, after, contract.None))
			require.Empty(t, contract.Compare(after, after, contract.Full), "nothing changes")
			require.False(t, contract.Same(before.All()[0], after.All()[0]))
		})
	}
}

func TestTheDocumentationHasTheRules(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/contracts.md")
	require.NoError(t, err)
	for _, r := range rules {
		allows := func(broken string) string {
			if broken == "" {
				return "allowed"
			}
			return "breaks"
		}
		row := fmt.Sprintf("| %s | %s | %s |", r.change, allows(r.forward), allows(r.backward))
		require.Contains(t, string(text), row)
	}
	require.Equal(t, len(rules), strings.Count(string(text), "| allowed | breaks |")+strings.Count(string(text), "| breaks | allowed |")+
		strings.Count(string(text), "| allowed | allowed |")+strings.Count(string(text), "| breaks | breaks |"), "docs/contracts.md has a row without a test")
}

func TestAVersionThatIsOnlyReadMustReadWhatIsStored(t *testing.T) {
	t.Parallel()
	type v1 struct {
		ID    string
		Price int
		Note  string
	}
	type partOfV1 struct {
		Price int
		More  bool
	}
	type otherV1 struct{ Price string }
	type v2 struct{ Cents int }
	contracts := func(options ...registry.TypeOption) *contract.Set {
		types := registry.New()
		require.NoError(t, registry.Register[v2](types, "price.set", append(options, registry.Version(2))...))
		set, err := contract.FromTypes(types)
		require.NoError(t, err)
		return set
	}
	before := contracts(registry.Upcast(1, func(v1) (v2, error) { return v2{}, nil }))
	part := contracts(registry.Upcast(1, func(partOfV1) (v2, error) { return v2{}, nil }))
	other := contracts(registry.Upcast(1, func(otherV1) (v2, error) { return v2{}, nil }))
	for _, keep := range []contract.Compatibility{contract.Forward, contract.Backward, contract.Full} {
		require.Empty(t, contract.Compare(before, part, keep), "nothing reads the other fields")
		require.Equal(t, []string{"field Price of price.set v1 may no longer be integer: stored rows of v1 may have it; keep the Go type of that version as it was, or set compat"},
			textsOf(contract.Compare(before, other, keep)))
	}
	require.Empty(t, contract.Compare(before, other, contract.None))
}

func TestTheOrderOfFieldsMeansNothing(t *testing.T) {
	t.Parallel()
	a := setOf(t, `{"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]}`)
	b := setOf(t, `{"properties": {"b": {}, "a": {}}, "required": ["b", "a"], "type": "object"}`)
	require.True(t, contract.Same(a.All()[0], b.All()[0]))
}
