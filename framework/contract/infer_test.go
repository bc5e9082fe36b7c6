package contract_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/registry"
)

// inferredFrom returns what a schema says about payloads, without the keywords that all schemas have.
func inferredFrom(t *testing.T, payloads ...string) string {
	t.Helper()
	c := contractFrom(t, payloads...)
	var members map[string]any
	require.NoError(t, json.Unmarshal(c.Text, &members))
	for _, name := range []string{"$schema", "description", "x-waybill"} {
		require.Contains(t, members, name)
		delete(members, name)
	}
	text, err := json.Marshal(members)
	require.NoError(t, err)
	return string(text)
}

func contractFrom(t *testing.T, payloads ...string) *contract.Contract {
	t.Helper()
	var i contract.Inference
	for _, payload := range payloads {
		i.Add("it", 1, true, []byte(payload))
	}
	set, others, err := i.Contracts(nil)
	require.NoError(t, err)
	require.Empty(t, others)
	c, ok := set.Of("it", 1)
	require.True(t, ok)
	for _, payload := range payloads {
		require.NoError(t, c.Validate([]byte(payload)), payload)
	}
	return c
}

func TestASchemaIsInferredFromPayloads(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]struct {
		payloads []string
		schema   string
	}{
		"a field that all have is required":                {[]string{`{"id": "a", "note": "b"}`, `{"id": "c"}`}, `{"type": "object", "properties": {"id": {"type": "string"}, "note": {"type": "string"}}, "required": ["id"]}`},
		"null is one of the types":                         {[]string{`{"id": null}`, `{"id": "c"}`}, `{"type": "object", "properties": {"id": {"type": ["null", "string"]}}, "required": ["id"]}`},
		"integers and fractions are numbers":               {[]string{`[1, 2.5, 1e3]`}, `{"type": "array", "items": {"type": "number"}}`},
		"whole numbers are integers":                       {[]string{`[1, -20]`, `[]`}, `{"type": "array", "items": {"type": "integer"}}`},
		"an empty array says nothing of its items":         {[]string{`[]`}, `{"type": "array"}`},
		"times are times if all are":                       {[]string{`{"a": "2026-03-01T12:30:00Z", "b": "2026-03-01T12:30:00.5+02:00"}`, `{"a": "2026-03-01T12:30:00Z", "b": ""}`}, `{"type": "object", "properties": {"a": {"type": "string", "format": "date-time"}, "b": {"type": "string"}}, "required": ["a", "b"]}`},
		"what looks like a time is none":                   {[]string{`["2026-03-01 12:30:00Z"]`}, `{"type": "array", "items": {"type": "string"}}`},
		"a comma is in no time":                            {[]string{`["2026-03-01T12:30:00,5Z"]`}, `{"type": "array", "items": {"type": "string"}}`},
		"one digit is no hour":                             {[]string{`["2026-03-01T1:30:00Z"]`}, `{"type": "array", "items": {"type": "string"}}`},
		"a day is no offset":                               {[]string{`["2026-03-01T10:30:00+24:00"]`}, `{"type": "array", "items": {"type": "string"}}`},
		"the thirtieth of February is none":                {[]string{`["2026-02-30T10:30:00Z"]`}, `{"type": "array", "items": {"type": "string"}}`},
		"objects in arrays have fields":                    {[]string{`{"lines": [{"sku": "a", "n": 1}, {"sku": "b"}]}`}, `{"type": "object", "properties": {"lines": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}, "sku": {"type": "string"}}, "required": ["sku"]}}}, "required": ["lines"]}`},
		"a field is required in each object that there is": {[]string{`{"a": null}`, `{"a": {"b": true}}`}, `{"type": "object", "properties": {"a": {"type": ["null", "object"], "properties": {"b": {"type": "boolean"}}, "required": ["b"]}}, "required": ["a"]}`},
		"other kinds of values are alternatives":           {[]string{`"a"`, `1`, `{"x": 1}`, `[true]`}, `{"type": ["array", "integer", "object", "string"], "items": {"type": "boolean"}, "properties": {"x": {"type": "integer"}}, "required": ["x"]}`},
		"members whose names are data are a map":           {[]string{`{"ada@example.com": {"n": 1}}`, `{"bob": {"n": 2, "m": 3}}`}, `{"type": "object", "additionalProperties": {"type": "object", "properties": {"m": {"type": "integer"}, "n": {"type": "integer"}}, "required": ["n"]}}`},
		"a field that was one before is in the map":        {[]string{`{"bob": [{"17": 2}]}`, `{"2026-03-01": [{"b": 0.5}]}`}, `{"type": "object", "additionalProperties": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "number"}}}}`},
		"a payload may be null":                            {[]string{`null`}, `{"type": "null"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.JSONEq(t, is.schema, inferredFrom(t, is.payloads...))
		})
	}
}

func TestAnObjectWithManyMembersIsAMap(t *testing.T) {
	t.Parallel()
	var payloads []string
	for n := range 101 {
		payloads = append(payloads, fmt.Sprintf(`{"of": {"name_%c%c": {"n": %d}}}`, 'a'+n/26, 'a'+n%26, n))
	}
	require.Contains(t, inferredFrom(t, payloads[:100]...), `"name_aa"`)
	require.JSONEq(t, `{"type": "object", "required": ["of"], "properties": {"of": {"type": "object", "additionalProperties":
		{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}}}`, inferredFrom(t, payloads...))
}

func TestAnInferredContractSaysSo(t *testing.T) {
	t.Parallel()
	c := contractFrom(t, `{}`, `{}`, `{}`)
	require.Equal(t, 3, c.Inferred)
	require.True(t, c.Key)
	require.Contains(t, c.Description(), "Inferred from 3 ")
	require.Contains(t, string(c.Text), `"inferred": 3`)
}

func TestPayloadsThatAreNotJSONAreCounted(t *testing.T) {
	t.Parallel()
	var i contract.Inference
	i.Add("label", 1, false, []byte("%PDF"))
	i.Add("it", 1, true, []byte(`{}`))
	i.Add("it", 1, false, []byte("\"\xff\""))
	i.Add("it", 1, false, []byte(`{} {}`))
	i.Add("it", 1, false, nil)
	set, others, err := i.Contracts(nil)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"label v1": 1, "it v1": 3}, others)
	require.Len(t, set.All(), 1)
	require.Equal(t, 1, set.All()[0].Inferred)
	require.True(t, set.All()[0].Key)
}

func TestGivenContractsHavePrecedenceAlsoByAnAlias(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[struct{ ID string }](types, "order.placed", registry.Aliases("OrderPlaced"), registry.Version(2), registry.Oldest(2)))
	given, err := contract.FromTypes(types)
	require.NoError(t, err)
	var i contract.Inference
	i.Add("order.placed", 2, false, []byte(`{"ID": "a", "More": 1}`))
	i.Add("OrderPlaced", 2, false, []byte(`not JSON`))
	i.Add("OrderPlaced", 1, false, []byte(`{"Old": 1}`))
	set, others, err := i.Contracts(given)
	require.NoError(t, err)
	require.Empty(t, others)
	var names []string
	for _, c := range set.All() {
		names = append(names, fmt.Sprint(c, " ", c.Inferred))
	}
	require.Equal(t, []string{"OrderPlaced v1 1", "order.placed v2 0"}, names)
}

// Values are private data. So all of them are marked, and no mark may be in the schema.
func TestASchemaHasNoValuesAndAllPayloadsFit(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		var payloads []string
		for range 1 + r.IntN(8) {
			text, err := json.Marshal(anyValue(r, 0))
			require.NoError(t, err)
			payloads = append(payloads, string(text))
		}
		c := contractFrom(t, payloads...)
		require.NotContains(t, string(c.Text), "secret")
		require.NotContains(t, string(c.Text), "7777")
		again := contractFrom(t, payloads...)
		require.Equal(t, string(c.Text), string(again.Text))
	}
}

func anyValue(r *rand.Rand, depth int) any {
	switch kind := r.IntN(9); {
	case kind == 0:
		return nil
	case kind == 1:
		return r.IntN(2) == 0
	case kind == 2:
		return 7777 + r.IntN(2)*70000
	case kind == 3:
		return 0.7777
	case kind == 4:
		return "secret"
	case kind == 5:
		return "2026-03-01T12:30:00.7777Z"
	case depth > 4:
		return "secret"
	case kind == 6:
		items := []any{}
		for range r.IntN(4) {
			items = append(items, anyValue(r, depth+1))
		}
		return items
	}
	members := make(map[string]any)
	for range r.IntN(5) {
		name := []string{"a", "b", "c", "secret@example.com", "77777", "e:f", "$g", "h i"}[r.IntN(8)]
		members[name] = anyValue(r, depth+1)
	}
	return members
}

func TestADeeplyNestedPayloadIsBounded(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":[`, 200) + strings.Repeat(`]}`, 200)
	c := contractFrom(t, deep)
	require.Less(t, len(c.Text), 20_000)
}

func TestRowsWhoseTypeIsNotLegalAreCounted(t *testing.T) {
	t.Parallel()
	var i contract.Inference
	i.Add("a\nb", 1, false, []byte(`{}`))
	i.Add("parcel", 1, false, []byte(`{}`))
	set, others, err := i.Contracts(nil)
	require.NoError(t, err)
	require.Len(t, set.All(), 1)
	require.Equal(t, map[string]int{"a\nb v1": 1}, others)
}
