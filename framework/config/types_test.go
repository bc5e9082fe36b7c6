package config_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

const orderSchema = `{"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}`

// typed writes schemas and loads a configuration with these types.
func typed(t *testing.T, types string, files map[string]string, registered *registry.Registry) (*config.Config, *bytes.Buffer, error) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	file := filepath.Join(folder, "waybill.yaml")
	text := "database: sqlite:" + filepath.Join(folder, "db") + "\nsinks: {out: {kind: drop}}\nroutes: {\"*\": [out]}\ntypes: " + strings.ReplaceAll(types, "DIR", folder) + "\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	kinds, err := sinks.NewSet(sinks.NewKind("drop", "nothing", func(sinks.Instance, struct{}) (sinks.Sink, error) {
		return sinks.Func(func(context.Context, *notification.Delivery) (notification.Receipt, error) { return "", nil }), nil
	}))
	require.NoError(t, err)
	var log bytes.Buffer
	c, err := config.Load(config.Source{File: file}, config.Options{Kinds: kinds, Types: registered, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	return c, &log, err
}

func TestSchemasOfTypesComeFromFiles(t *testing.T) {
	t.Parallel()
	c, _, err := typed(t, "{order.placed: {schema: 'DIR/order.v{version}.json', avro: DIR/order.avsc, protobuf: 'DIR/order{version}.proto', message: shop.Order}}", map[string]string{
		"order.v1.json": `{"type": "object"}`, "order.v2.json": orderSchema, "order.avsc": `"string"`, "order2.proto": `syntax = "proto3";`, "order.v.json": "no",
	}, nil)
	require.NoError(t, err)
	set, err := c.Contracts()
	require.NoError(t, err)
	require.Len(t, set.All(), 2)
	require.ErrorContains(t, set.Validate("order.placed", 2, []byte(`{}`)), "the payload does not fit the schema of order.placed v2: / lacks total")
	require.NoError(t, set.Validate("order.placed", 1, []byte(`{}`)))
	require.ErrorContains(t, set.Validate("order.placed", 3, []byte(`{}`)), "there is no schema of order.placed v3; there is one of v1, v2")

	for _, version := range []int{1, 2} {
		avro, err := set.Schema("order.placed", version, sinks.Avro)
		require.NoError(t, err)
		require.Equal(t, sinks.Schema{Text: `"string"`}, avro)
	}
	protobuf, err := set.Schema("order.placed", 2, sinks.Protobuf)
	require.NoError(t, err)
	require.Equal(t, sinks.Schema{Text: `syntax = "proto3";`, Message: "shop.Order"}, protobuf)
	_, err = set.Schema("order.placed", 1, sinks.Protobuf)
	require.ErrorIs(t, err, sinks.ErrNoSchema)
}

type bill struct {
	Total float64 `json:"total"`
}

func TestMistakesOfTypesHaveTheirLines(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[bill](types, "bill"))
	require.NoError(t, registry.Register[struct{ C chan int }](types, "odd"))
	for declared, want := range map[string]string{
		"{order.placed: {}}":                                                   "types.order.placed.schema is missing: name the file with its JSON Schema",
		"{order.placed: {schema: DIR/none.json}}":                              "none.json: no such file or directory",
		"{order.placed: {schema: 'DIR/none.v{version}.json'}}":                 "with a version in place of {version}",
		"{order.placed: {schema: DIR/broken.json}}":                            "broken.json: no usable schema",
		"{order.placed: {schema: DIR/wrong.json}}":                             "it is not a JSON Schema (2020-12): /type ",
		"{order.placed: {schema: DIR/remote.json}}":                            "is another document: put its definitions into $defs",
		"{order.placed: {schema: DIR/other.json}}":                             "it is the contract of order.moved v1, not of order.placed",
		"{order.placed: {schema: DIR/good.json, on_invalid: drop}}":            "on_invalid is \"drop\": use refuse, park or warn",
		"{order.placed: {schema: DIR/good.json, message: shop.Order}}":         "types.order.placed.message: names a message in the file of protobuf, which is missing",
		"{bill: {schema: DIR/good.json}}":                                      "types.bill.schema: the program registers the type and has its schema: leave it out",
		"{odd: {on_invalid: warn}}":                                            `odd v1: field C: chan int cannot be JSON: leave the field out with the tag json:"-", or use another type`,
		"{order.*: {schema: DIR/good.json}}":                                   "use letters, digits, dots and dashes",
		"{order.placed: {schema: DIR/good.json, protobuf: DIR/none.proto}}":    "none.proto: no such file or directory",
		"{order.placed: {schema: DIR/good.json, avro: 'DIR/x{version}.avsc'}}": "no file is named",
	} {
		_, _, err := typed(t, declared, map[string]string{
			"good.json": orderSchema, "broken.json": "{", "wrong.json": `{"type": "decimal"}`,
			"remote.json": `{"$ref": "https://example.com/x.json"}`, "other.json": `{"x-waybill": {"type": "order.moved"}}`,
		}, types)
		require.ErrorContains(t, err, want, declared)
		require.ErrorContains(t, err, "waybill.yaml:4: ", declared)
	}
	_, _, err := typed(t, "{bill: {on_invalid: refuse}}", nil, types)
	require.NoError(t, err, "a type that is not used has no schema to be")
}

func TestPayloadsThatDoNotFitAreRefusedParkedOrWarnedOf(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[bill](types, "bill", registry.Aliases("invoice")))
	require.NoError(t, registry.Register[struct{}](types, "free"))
	c, log, err := typed(t, "{a: {schema: DIR/s.json}, b: {schema: DIR/s.json, on_invalid: park}, c: {schema: DIR/s.json, on_invalid: warn}, bill: {on_invalid: refuse}}",
		map[string]string{"s.json": orderSchema}, types)
	require.NoError(t, err)
	check := c.ForwarderConfig(nil).Check
	class := func(typ, payload string) sinks.Class {
		err := check(t.Context(), &notification.Envelope{ID: "n-1", Type: typ, Version: 1, Payload: []byte(payload)})
		if err == nil {
			return -1
		}
		class, _ := sinks.Classify(err)
		require.ErrorContains(t, err, "/total is string, want number")
		require.NotContains(t, err.Error(), "secret")
		return class
	}
	const fits, wrong = `{"total": 1, "more": true}`, `{"total": "secret"}`
	for _, typ := range []string{"a", "b", "c", "bill", "invoice", "free", "unknown"} {
		require.EqualValues(t, -1, class(typ, fits), typ)
	}
	require.Equal(t, sinks.ClassInvalid, class("a", wrong))
	require.Equal(t, sinks.ClassUnknown, class("b", wrong))
	require.Equal(t, sinks.ClassInvalid, class("bill", wrong))
	require.Equal(t, sinks.ClassInvalid, class("invoice", wrong))
	require.EqualValues(t, -1, class("free", wrong), "not checked")
	require.Empty(t, log.String())
	require.EqualValues(t, -1, class("c", wrong))
	require.Contains(t, log.String(), "a payload does not fit its schema, and is delivered all the same")
	require.NotContains(t, log.String(), "secret")
}

func TestAVersionWithoutASchemaWaitsForAnotherDeployment(t *testing.T) {
	t.Parallel()
	c, _, err := typed(t, "{a: {schema: DIR/s.json}, w: {schema: DIR/s.json, on_invalid: warn}}", map[string]string{"s.json": orderSchema}, nil)
	require.NoError(t, err)
	check := c.ForwarderConfig(nil).Check
	err = check(t.Context(), &notification.Envelope{Type: "a", Version: 2, Payload: []byte(`{}`)})
	class, _ := sinks.Classify(err)
	require.Equal(t, sinks.ClassUnknown, class)
	require.ErrorContains(t, err, "there is no schema of a v2; there is one of v1")
	require.NoError(t, check(t.Context(), &notification.Envelope{Type: "w", Version: 2, Payload: []byte(`{}`)}))

	binary := &notification.Envelope{Type: "a", Version: 1, Payload: []byte{0xff}, Metadata: notification.Metadata{notification.MetadataContentType: "application/protobuf"}}
	require.NoError(t, check(t.Context(), binary), "it is not JSON, and not checked")
}

func TestARouteMayNameATypeOfAnotherProgram(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[bill](types, "bill"))
	c, _, err := typed(t, "{parcel.sent: {schema: DIR/s.json}}", map[string]string{"s.json": orderSchema}, types)
	require.NoError(t, err)
	c.Routes["parcel.*"] = c.Routes["*"]
	_, err = c.Table()
	require.NoError(t, err)
	c.Routes["letter.*"] = c.Routes["*"]
	_, err = c.Table()
	require.ErrorContains(t, err, "routes.letter.*: matches no registered type")
}

func TestAChangedSchemaNeedsANewForwarder(t *testing.T) {
	t.Parallel()
	load := func(schema string) *config.Config {
		c, _, err := typed(t, "{order.placed: {schema: DIR/s.json}}", map[string]string{"s.json": schema}, nil)
		require.NoError(t, err)
		c.Database, c.Types = config.Database{}, nil // their folders differ
		return c
	}
	require.False(t, load(orderSchema).ChangesTo(load(orderSchema)).More)
	require.True(t, load(orderSchema).ChangesTo(load(`{}`)).More)
}
