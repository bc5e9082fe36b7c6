package program

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/serializer/protobuf"
	"github.com/waybill-go/waybill/sinks"
)

var update = flag.Bool("update", false, "record the golden files as they are")

type cataloguedMoney struct {
	Cents    int64  `json:"cents"`
	Currency string `json:"currency" jsonschema:"enum=EUR,enum=USD"`
}

type cataloguedPart struct {
	SKU   string            `json:"sku"`
	Price cataloguedMoney   `json:"price"`
	Parts []*cataloguedPart `json:"parts,omitempty"`
}

type cataloguedOrder struct {
	Order string           `json:"order"`
	Total cataloguedMoney  `json:"total"`
	Parts []cataloguedPart `json:"parts"`
	Note  *string          `json:"note,omitempty"`
}

type cataloguedOldOrder struct {
	Order string `json:"order"`
}

// cataloguedCategory refers to itself.
type cataloguedCategory struct {
	Name string                `json:"name"`
	In   []*cataloguedCategory `json:"in,omitempty"`
}

// catalogued returns types of all kinds.
func catalogued(t *testing.T) *registry.Registry {
	t.Helper()
	types := registry.New()
	require.NoError(t, registry.Register[cataloguedOrder](types, "order.placed",
		registry.Version(2), registry.Upcast(1, func(o cataloguedOldOrder) (cataloguedOrder, error) { return cataloguedOrder{Order: o.Order}, nil }),
		registry.Aliases("order.created"), registry.Key(func(o cataloguedOrder) string { return o.Order }),
		registry.Describe(registry.Description{
			Title: "Order placed", Text: "A customer has placed an order, and *paid* for it.", Owner: "checkout@shop.example",
			Examples: []any{cataloguedOrder{Order: "o-1", Total: cataloguedMoney{1200, "EUR"}, Parts: []cataloguedPart{{SKU: "a", Price: cataloguedMoney{1200, "EUR"}}}}},
		})))
	require.NoError(t, registry.Register[cataloguedCategory](types, "order.sorted"))
	require.NoError(t, registry.Register[*durationpb.Duration](types, "order.timed", registry.Serializer(protobuf.Serializer{})))
	require.NoError(t, registry.Register[struct{ Parcel string }](types, "parcel.lost"))
	return types
}

// channelled is a sink without a kind that says how consumers get its notifications.
type channelled struct{}

func (channelled) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	return "", nil
}

func (channelled) Channel() sinks.Channel {
	return sinks.Channel{Protocol: "mqtt", Hosts: []string{"broker.example:1883"}, Address: "orders", Text: "A message for each order."}
}

func asyncAPI(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	own := Sink("own", func(sinks.Instance) (sinks.Sink, error) { return channelled{}, nil })
	environ := []string{"KAFKA_PASSWORD=hunter2"} // the others are not set
	code := Run(t.Context(), Call{append([]string{"types", "asyncapi"}, args...), environ, &stdout, &stderr}, Types(catalogued(t)), own)
	require.Zero(t, code, stderr.String())
	require.Empty(t, stderr.String())
	return stdout.String()
}

func TestTheAsyncAPIHasEveryKindOfSinkAndNoSecrets(t *testing.T) {
	t.Parallel()
	const file, golden = "testdata/asyncapi/waybill.yaml", "testdata/asyncapi/asyncapi.json"
	document := asyncAPI(t, "-c", file)
	require.NotContains(t, document, "hunter2")
	require.Equal(t, document, asyncAPI(t, "-c", file), "the same configuration gives the same document")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(document), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), document, "go test -run AsyncAPI ./framework/program -update records it")

	c, err := config.LoadChannels(config.Source{File: file}, config.Options{Kinds: ownKinds(t), Types: catalogued(t)})
	require.NoError(t, err)
	var used []string
	for _, sink := range c.Sinks {
		used = append(used, sink.Kind)
	}
	require.Subset(t, used, ownKinds(t).Names(), "the configuration has every kind")
}

func TestTheAsyncAPIHasATitleAndAVersion(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "sinks:\n  events: {kind: kafka, with: {brokers: ['a:1'], topic: x}}\nroutes: {'*': [events]}\n")
	require.Contains(t, asyncAPI(t, "-c", file, "--title", "Shop", "--api-version", "2.1.0"), `"title": "Shop",
    "version": "2.1.0"`)
}

func TestTheAsyncAPIHasTheTypesOfTheConfiguration(t *testing.T) {
	t.Parallel()
	schema := filepath.Join(t.TempDir(), "parcel.json")
	require.NoError(t, os.WriteFile(schema, []byte(`{"type": "object", "properties": {"parcel": {"type": "string"}}}`), 0o600))
	r := waybill(t, "types", "asyncapi", "-c", writeFile(t, `
types: {parcel.found: {schema: "`+schema+`"}}
sinks:
  events: {kind: kafka, with: {brokers: ["a:1"], topic: x}}
routes: {parcel.*: [events]}
`))
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, `"$ref": "#/components/schemas/parcel.found.v1"`)
}

func TestTheAsyncAPINeedsAConfigurationWithoutMistakes(t *testing.T) {
	t.Parallel()
	r := waybill(t, "types", "asyncapi", "-c", writeFile(t, "sinks:\n  events: {kind: other}\nroutes: {order.placed: [events, other]}\n"))
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, `unknown sink kind "other"`)
	require.Contains(t, r.stderr, `routes.order.placed`)
}
