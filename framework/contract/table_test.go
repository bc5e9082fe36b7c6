package contract_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/contract"
)

// fieldsOf returns the table of a schema, a field a line.
func fieldsOf(t *testing.T, schema string) (lines []string, complete bool) {
	t.Helper()
	set := new(contract.Set)
	require.NoError(t, set.Add(contract.About{Type: "it", Version: 1}, []byte(schema)))
	c, _ := set.Of("it", 1)
	fields, complete := c.Fields()
	for _, f := range fields {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s: %s, %t %s", f.Path, f.Type, f.Required, f.Text)))
	}
	return lines, complete
}

func TestTheTableOfASchemaHasItsFieldsInOrder(t *testing.T) {
	t.Parallel()
	lines, complete := fieldsOf(t, `{
		"type": "object", "required": ["total", "lines"],
		"properties": {
			"total": {"$ref": "#/$defs/money", "description": "What the customer pays."},
			"lines": {"type": ["array", "null"], "items": {"type": "object", "properties": {"price": {"$ref": "#/$defs/money"}}}},
			"note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
			"at": {"type": "string", "format": "date-time"},
			"by": {"type": "object", "additionalProperties": {"type": "integer"}},
			"state": {"enum": ["new", "paid"]},
			"kind": {"const": 7},
			"any": true,
			"tree": {"$ref": "#/$defs/tree"},
			"self": {"oneOf": [{"$ref": "#"}, {"type": "null"}]}
		},
		"$defs": {
			"money": {"type": "object", "description": "An amount.", "required": ["cents"], "properties": {"cents": {"type": "integer"}}},
			"tree": {"type": "object", "properties": {"in": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}
		}
	}`)
	require.True(t, complete)
	require.Equal(t, []string{
		"total: object, true What the customer pays.",
		"total.cents: integer, true",
		"lines: array of object or null, true",
		"lines[].price: object, false An amount.",
		"lines[].price.cents: integer, true",
		"note: string or null, false",
		"at: string (date-time), false",
		"by: object, false",
		"by.*: integer, false",
		`state: "new" or "paid", false`,
		"kind: 7, false",
		"any: anything, false",
		"tree: object, false",
		"tree.in: array of tree, as above, false",
		"self: payload, as above or null, false",
	}, lines)
}

func TestTheTableOfAPayloadThatIsNoObjectHasOneLine(t *testing.T) {
	t.Parallel()
	lines, complete := fieldsOf(t, `{"type": "string"}`)
	require.True(t, complete)
	require.Equal(t, []string{": string, true"}, lines)
}

func TestTheTableOfAnEndlessSchemaEnds(t *testing.T) {
	t.Parallel()
	doubled := new(strings.Builder)
	for i := range 60 {
		fmt.Fprintf(doubled, `"a%d": {"allOf": [{"$ref": "#/$defs/a%d"}, {"$ref": "#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	_, complete := fieldsOf(t, `{"$ref": "#/$defs/a0", "$defs": {`+doubled.String()+`"a60": {"type": "object"}}}`)
	require.False(t, complete)

	wide := new(strings.Builder)
	for i := range 600 {
		fmt.Fprintf(wide, `"a%d": {},`, i)
	}
	lines, complete := fieldsOf(t, `{"properties": {`+wide.String()+`"z": {}}}`)
	require.False(t, complete)
	require.Len(t, lines, 500)
}
