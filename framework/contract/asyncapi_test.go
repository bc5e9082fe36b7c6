package contract_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/sinks"
)

// document is the part of a document of AsyncAPI that the tests look at.
type document struct {
	Channels map[string]struct {
		Address    *string
		Parameters map[string]struct{ Enum []string }
		Messages   map[string]struct {
			Name, Description string
			Payload           any
			Examples          []struct{ Payload any }
		}
		Servers []map[string]string
	}
	Servers    map[string]map[string]any
	Components struct {
		Schemas map[string]struct{ Schema any }
	}
}

// documentOf returns the document of an outlet to which one type goes, whose contract has the given schema.
func documentOf(t *testing.T, schema string, channel sinks.Channel, rules ...contract.Rule) document {
	t.Helper()
	set := new(contract.Set)
	require.NoError(t, set.Add(contract.About{Type: "it", Version: 1}, []byte(schema)))
	text, err := set.AsyncAPI(contract.Catalogue{Title: "shop", Version: "1", Outlets: []contract.Outlet{
		{Sink: "events", Channel: channel, Types: []contract.Outgoing{{Type: "it", Rules: rules}, {Type: "other", Rules: []contract.Rule{{}}}}},
	}})
	require.NoError(t, err)
	var d document
	require.NoError(t, json.Unmarshal(text, &d), string(text))
	return d
}

func TestReferencesOfASchemaPointToItsPlaceInTheDocument(t *testing.T) {
	t.Parallel()
	d := documentOf(t, `{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://shop.example/it",
		"properties": {"$ref": {"$ref": "#"}, "$id": {"anyOf": [{"$ref": "#/$defs/a"}, true]}, "b": {"const": "$ref"}},
		"$defs": {"a": {"not": {"$ref":   "#/$defs/a"}}}
	}`, sinks.Channel{})
	schema, err := json.Marshal(d.Components.Schemas["it.v1"].Schema)
	require.NoError(t, err)
	require.JSONEq(t, `{
		"properties": {"$ref": {"$ref": "#/components/schemas/it.v1/schema"}, "$id": {"anyOf": [{"$ref": "#/components/schemas/it.v1/schema/$defs/a"}, true]}, "b": {"const": "$ref"}},
		"$defs": {"a": {"not": {"$ref": "#/components/schemas/it.v1/schema/$defs/a"}}}
	}`, string(schema))
	require.Equal(t, map[string]any{"$ref": "#/components/schemas/it.v1"}, d.Channels["events"].Messages["it.v1"].Payload)
}

func TestASchemaThatCannotBePartOfTheDocumentIsLeftOut(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{
		`{"properties": {"a": {"$ref": "#here"}}, "$defs": {"a": {"$anchor": "here"}}}`,
		`{"properties": {"a": {"$ref": "https://shop.example/a"}}, "$defs": {"a": {"$id": "https://shop.example/a"}}}`,
		`{"$dynamicAnchor": "node", "properties": {"a": {"$dynamicRef": "#node"}}}`,
		`{"properties": {"a": {"const": {"$ref": "is data"}}}}`,
		`{"examples": [{"$ref": "is data"}]}`,
	} {
		d := documentOf(t, schema, sinks.Channel{})
		require.Empty(t, d.Components.Schemas, schema)
		require.Nil(t, d.Channels["events"].Messages["it.v1"].Payload)
		require.Contains(t, d.Channels["events"].Messages["it.v1"].Description, "waybill types export")
	}
}

func TestAPayloadThatARouteMakesHasNoSchema(t *testing.T) {
	t.Parallel()
	const schema = `{"type": "object", "examples": [{"a": 1}]}`
	m := documentOf(t, schema, sinks.Channel{}).Channels["events"].Messages["it.v1"]
	require.NotNil(t, m.Payload)
	require.Len(t, m.Examples, 1)

	m = documentOf(t, schema, sinks.Channel{}, contract.Rule{When: "payload.a > 1", Payload: []string{"sum"}}, contract.Rule{When: "true"}).Channels["events"].Messages["it.v1"]
	require.Nil(t, m.Payload)
	require.Empty(t, m.Examples)
	require.Contains(t, m.Description, "It is sent here when `payload.a > 1` with `sum` as the payload, otherwise when `true`. So the schema of the type does not apply.")
}

func TestTheBodyOfAChannelHasThePayloadInIt(t *testing.T) {
	t.Parallel()
	wrap := func(payload map[string]any) map[string]any {
		return map[string]any{"properties": map[string]any{"data": payload}}
	}
	events := documentOf(t, `{"type": "object"}`, sinks.Channel{Body: wrap}).Channels["events"]
	require.Equal(t, map[string]any{
		"schemaFormat": "application/schema+json;version=draft-2020-12",
		"schema":       map[string]any{"properties": map[string]any{"data": map[string]any{"$ref": "#/components/schemas/it.v1/schema"}}},
	}, events.Messages["it.v1"].Payload)
	require.Contains(t, events.Messages["other"].Description, "There is no contract")
	require.Equal(t, map[string]any{}, events.Messages["other"].Payload.(map[string]any)["schema"].(map[string]any)["properties"].(map[string]any)["data"])

	require.Nil(t, documentOf(t, `{"type": "object"}`, sinks.Channel{Body: sinks.NoSchema}).Channels["events"].Messages["it.v1"].Payload)
}

func TestAnAddressHasParametersAndAChannelAServer(t *testing.T) {
	t.Parallel()
	d := documentOf(t, `{}`, sinks.Channel{Protocol: "kafka", Hosts: []string{"a:1"}, Address: "shop.{Type}.{tenant}"})
	require.Equal(t, "shop.{Type}.{tenant}", *d.Channels["events"].Address)
	require.Equal(t, []string{"it", "other"}, d.Channels["events"].Parameters["Type"].Enum)
	require.Contains(t, d.Channels["events"].Parameters, "tenant")
	require.Equal(t, map[string]any{"host": "a:1", "protocol": "kafka"}, d.Servers["kafka.a-1"])

	d = documentOf(t, `{}`, sinks.Channel{Protocol: "https"})
	require.Nil(t, d.Channels["events"].Address, "it is not known")
	require.Equal(t, []map[string]string{{"$ref": "#/servers/events"}}, d.Channels["events"].Servers, "a channel without a server would be on all of them")
}

func TestOddNamesOfTypesAreLegalInTheDocument(t *testing.T) {
	t.Parallel()
	set, typ := new(contract.Set), `<a href="#/x">~ö/{y}`
	require.Error(t, set.Add(contract.About{Type: typ + " ", Version: 1}, []byte(`{}`)))
	typ = strings.ReplaceAll(typ, " ", "")
	require.NoError(t, set.Add(contract.About{Type: typ, Version: 1}, []byte(`{}`)))
	text, err := set.AsyncAPI(contract.Catalogue{Outlets: []contract.Outlet{{Sink: "s", Types: []contract.Outgoing{{Type: typ}}}}})
	require.NoError(t, err)
	var d document
	require.NoError(t, json.Unmarshal(text, &d))
	for name := range d.Channels["s"].Messages {
		require.Regexp(t, `^[\w.-]+$`, name)
		require.Contains(t, d.Components.Schemas, name)
	}
}
