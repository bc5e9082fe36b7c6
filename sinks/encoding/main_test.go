package encoding_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// contracts has the schemas of tests, by language, for every version of every type but "unknown".
type contracts map[sinks.SchemaLanguage]sinks.Schema

func (c contracts) Schema(typ string, version int, l sinks.SchemaLanguage) (sinks.Schema, error) {
	s, has := c[l]
	if !has || typ == "unknown" {
		return sinks.Schema{}, fmt.Errorf("%s in %s: %w", typ, l, sinks.ErrNoSchema)
	}
	return s, nil
}

func (c contracts) Validate(typ string, version int, payload []byte) error {
	s, err := c.Schema(typ, version, sinks.JSONSchema)
	if err != nil {
		return err
	}
	schema, err := jsonschema.UnmarshalJSON(strings.NewReader(s.Text))
	if err != nil {
		return err
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", schema); err != nil {
		return err
	}
	compiled, err := compiler.Compile("schema.json")
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(payload)))
	if err != nil {
		return errors.New("the payload is not JSON")
	}
	invalid := new(jsonschema.ValidationError)
	if err := compiled.Validate(v); errors.As(err, &invalid) {
		for len(invalid.Causes) > 0 {
			invalid = invalid.Causes[0]
		}
		return fmt.Errorf("/%s is wrong", strings.Join(invalid.InstanceLocation, "/"))
	}
	return nil
}

const orderJSON = `{
	"title": "OrderPlaced", "type": "object", "required": ["id", "total"], "additionalProperties": false,
	"properties": {
		"id": {"type": "integer"}, "total": {"type": "number"}, "note": {"type": "string"},
		"lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}}
	},
	"$defs": {"Line": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}, "count": {"type": "integer", "minimum": 1, "maximum": 1000}}}}
}`

const orderProto = `syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Unused { string x = 1; }
message Events {
	map<string, int32> counts = 1;
	message Other { string x = 1; }
	message OrderPlaced {
		int64 id = 1;
		double total = 2;
		string note = 3;
		repeated Line lines = 4;
		google.protobuf.Timestamp placed_at = 5;
		float weight = 6;
		map<string, double> prices = 7;
	}
}
message Line { string sku = 1; int32 count = 2; }
`

func orders() contracts {
	return contracts{
		sinks.JSONSchema: {Text: orderJSON},
		sinks.Protobuf:   {Text: orderProto, Message: "shop.Events.OrderPlaced"},
	}
}

func order(payload string) *notification.Envelope {
	return &notification.Envelope{ID: notification.NewID(), Type: "order.placed", Version: 2, Payload: []byte(payload)}
}

// registry is a fake one that counts the requests.
type registry struct {
	*srfake.Registry
	requests atomic.Int64
}

func newRegistry(t testing.TB, options ...srfake.Option) *registry {
	r := &registry{Registry: srfake.New(options...)}
	t.Cleanup(r.Close)
	r.Intercept(func(http.ResponseWriter, *http.Request) bool {
		r.requests.Add(1)
		return false
	})
	return r
}

func (r *registry) answer(status int, body string, header ...string) {
	r.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
		return true
	})
}

func (r *registry) recover() { r.ClearInterceptors() }

func newEncoder(t testing.TB, c contracts, r *registry, format string, change ...func(*encoding.Config)) *encoding.Encoder {
	t.Helper()
	config := encoding.Config{Format: format, Register: true, Registry: encoding.Registry{URL: r.URL()}}
	for _, f := range change {
		f(&config)
	}
	e, err := encoding.New(sinks.Instance{Name: "events", Contracts: c}, config)
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return e
}

// registered returns the schema of an encoded payload, and what follows its id.
func registered(t testing.TB, r *registry, encoded []byte) (sr.Schema, []byte) {
	t.Helper()
	id, rest, err := new(sr.ConfluentHeader).DecodeID(encoded)
	require.NoError(t, err)
	client, err := sr.NewClient(sr.URLs(r.URL()))
	require.NoError(t, err)
	schema, err := client.SchemaByID(t.Context(), id)
	require.NoError(t, err)
	return schema, rest
}

func requireClass(t testing.TB, want sinks.Class, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, sinktest.Class(err), "%v", err)
}

// canonical returns JSON with its members sorted and its numbers as they are.
func canonical(t testing.TB, text []byte) any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var v any
	require.NoError(t, decoder.Decode(&v), "%s", text)
	return v
}
