//go:build unix

package kafka_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/internal/turns"
	"github.com/waybill-go/waybill/sinks/kafka"
)

// benchmarkSchemas returns schemas for the payloads of benchmarkDeliveries.
func benchmarkSchemas(b *testing.B, d *notification.Delivery) *contract.Set {
	schemas := new(contract.Set)
	require.NoError(b, schemas.Add(contract.About{Type: d.Type, Version: d.Version},
		[]byte(`{"type": "object", "required": ["order", "n", "note"], "properties": {"order": {"type": "integer"}, "n": {"type": "integer"}, "note": {"type": "string"}}}`)))
	require.NoError(b, schemas.Give(d.Type, 0, sinks.Protobuf, sinks.Schema{Text: `syntax = "proto3"; message Order { int64 order = 1; int64 n = 2; string note = 3; }`}))
	return schemas
}

// BenchmarkEncoding compares the sink without encoding and with each format, as BenchmarkDeliver does.
func BenchmarkEncoding(b *testing.B) {
	brokers, topic := benchmarkBrokers(b)["fake"](b)
	r := newRegistry(b)
	deliveries := benchmarkDeliveries(benchmarkKeys)
	schemas := benchmarkSchemas(b, deliveries[0][0])
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
