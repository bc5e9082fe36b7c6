//go:build unix

package kafka_test

import (
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/internal/turns"
	"github.com/waybill-go/waybill/sinks/kafka"
)

// benchmarkSchemas has schemas for the payloads of benchmarkDeliveries.
type benchmarkSchemas struct{ compiled *jsonschema.Schema }

const benchmarkSchema = `{"type": "object", "required": ["order", "n", "note"], "properties": {"order": {"type": "integer"}, "n": {"type": "integer"}, "note": {"type": "string"}}}`

func newBenchmarkSchemas(b *testing.B) benchmarkSchemas {
	schema, err := jsonschema.UnmarshalJSON(strings.NewReader(benchmarkSchema))
	require.NoError(b, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(b, compiler.AddResource("schema.json", schema))
	compiled, err := compiler.Compile("schema.json")
	require.NoError(b, err)
	return benchmarkSchemas{compiled}
}

func (benchmarkSchemas) Schema(_ string, _ int, l sinks.SchemaLanguage) (sinks.Schema, error) {
	switch l {
	case sinks.JSONSchema:
		return sinks.Schema{Text: benchmarkSchema}, nil
	case sinks.Protobuf:
		return sinks.Schema{Text: `syntax = "proto3"; message Order { int64 order = 1; int64 n = 2; string note = 3; }`}, nil
	}
	return sinks.Schema{}, sinks.ErrNoSchema
}

func (s benchmarkSchemas) Validate(_ string, _ int, payload []byte) error {
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(payload)))
	if err != nil {
		return err
	}
	return s.compiled.Validate(v)
}

// BenchmarkEncoding compares the sink without encoding and with each format, as BenchmarkDeliver does.
func BenchmarkEncoding(b *testing.B) {
	brokers, topic := benchmarkBrokers(b)["fake"](b)
	r := newRegistry(b)
	schemas := newBenchmarkSchemas(b)
	deliveries := benchmarkDeliveries(benchmarkKeys)
	contenders := []turns.Contender{{Name: "plain", Do: throughSink(b, brokers, topic, deliveries)}}
	for _, format := range []string{encoding.FormatAvro, encoding.FormatJSONSchema, encoding.FormatProtobuf} {
		sink, err := kafka.New(sinks.Instance{Name: "events", Contracts: schemas}, kafka.Config{
			Brokers: brokers, Topic: topic,
			Encoding: encoding.Config{Format: format, Register: true, Subject: encoding.SubjectTopic, Registry: encoding.Registry{URL: r.URL() + "/contexts/" + format}},
		})
		require.NoError(b, err)
		b.Cleanup(func() { _ = sink.Close(b.Context()) })
		contenders = append(contenders, turns.Contender{Name: format, Do: through(b, sink, deliveries)})
	}
	turns.Compare(b, 1, contenders...)
}
