package kafka_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// totals has a schema for the payload of delivery.
type totals struct{}

const totalSchema = `{"type":"record","name":"Total","fields":[{"name":"total","type":"long"}]}`

func (totals) Schema(typ string, _ int, l sinks.SchemaLanguage) (sinks.Schema, error) {
	if l != sinks.Avro || typ != "order.placed" {
		return sinks.Schema{}, sinks.ErrNoSchema
	}
	return sinks.Schema{Text: totalSchema}, nil
}

func (totals) Validate(string, int, []byte) error { return nil }

func newRegistry(t testing.TB) *srfake.Registry {
	r := srfake.New()
	t.Cleanup(r.Close)
	return r
}

// newEncodingSink makes a sink that encodes in Avro.
func newEncodingSink(t testing.TB, cluster *kafkatest.Cluster, r *srfake.Registry, topic string, change ...func(*kafka.Config)) *kafka.Sink {
	t.Helper()
	c := kafka.Config{
		Brokers: cluster.Brokers, Topic: topic, Timeout: time.Minute,
		Encoding: encoding.Config{Format: encoding.FormatAvro, Register: true, Registry: encoding.Registry{URL: r.URL()}},
	}
	for _, f := range change {
		f(&c)
	}
	sink, err := kafka.New(sinks.Instance{Name: "events", Contracts: totals{}}, c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, sink.Close(context.Background())) })
	return sink
}

func TestPayloadsAreWrittenInAvro(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*kafka.Config){
		"json":        func(*kafka.Config) {},
		"cloudevents": func(c *kafka.Config) { c.Format, c.Source = kafka.FormatBinary, "/shop" },
		"watermill":   withWatermill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, r := kafkatest.Fake(t, kfake.SeedTopics(1, "orders")), newRegistry(t)
			sink := newEncodingSink(t, cluster, r, "orders", change)
			require.NoError(t, sink.CheckHealth(t.Context()))
			d := delivery("k")
			d.Metadata = notification.Metadata{notification.MetadataContentType: "application/json", "tenant": "acme"}
			_, err := sink.Deliver(t.Context(), d)
			require.NoError(t, err)
			record := cluster.ConsumeAll(t, "orders", 0)[0]
			require.Equal(t, "application/vnd.confluent.avro", headersOf(record)["content-type"])
			id, rest, err := new(sr.ConfluentHeader).DecodeID(record.Value)
			require.NoError(t, err)
			require.Equal(t, 1, id)
			var v map[string]any
			_, err = avro.MustParse(totalSchema).Decode(rest, &v)
			require.NoError(t, err)
			require.Equal(t, map[string]any{"total": int64(12)}, v)
			require.Equal(t, "acme", envelopeOf(t, record).Metadata["tenant"])
			require.Len(t, record.Headers, len(headersOf(record)), "no header is there twice")
		})
	}
}

func TestOneRecordThatDoesNotFitItsSchemaStopsNoOther(t *testing.T) {
	t.Parallel()
	cluster, r := kafkatest.Fake(t, kfake.SeedTopics(1, "orders")), newRegistry(t)
	sink := newEncodingSink(t, cluster, r, "orders")
	wrong, unknown := delivery("b"), delivery("c")
	wrong.Payload, unknown.Type = []byte(`{"total": "twelve"}`), "order.paid"
	results := sink.DeliverBatch(t.Context(), []*notification.Delivery{delivery("a"), wrong, unknown, delivery("d")})
	require.NoError(t, results[0].Err)
	assertClass(t, sinks.ClassInvalid, results[1].Err)
	require.ErrorContains(t, results[1].Err, "/total")
	assertClass(t, sinks.ClassUnknown, results[2].Err)
	require.NoError(t, results[3].Err)
	require.Len(t, cluster.ConsumeAll(t, "orders", 0), 2)
}

func TestASinkWaitsForTheSchemaRegistry(t *testing.T) {
	t.Parallel()
	cluster, r := kafkatest.Fake(t, kfake.SeedTopics(1, "orders")), newRegistry(t)
	sink := newEncodingSink(t, cluster, r, "{{.Metadata.topic}}", func(c *kafka.Config) { c.Encoding.Register = false })
	d := delivery("a")
	d.Metadata = notification.Metadata{"topic": "orders"}
	_, err := sink.Deliver(t.Context(), d)
	assertUnavailable(t, err, `the subject "orders-value"`)
	_, _, err = r.RegisterSchema("orders-value", sr.Schema{Schema: totalSchema})
	require.NoError(t, err)
	deliverAtLast(t, sink, d, func(err error) { assertClass(t, sinks.ClassUnavailable, err) })
}

func TestEncodingIsNotForArrays(t *testing.T) {
	t.Parallel()
	c := decode(t, `{brokers: [a:1], topic: t, collection: array, encoding: {format: avro, registry: {url: "http://r"}}}`)
	require.ErrorContains(t, c.Validate(), "collection: array is one array of notifications, which has no schema; with encoding use records")
	c = decode(t, `{brokers: [a:1], topic: t, exactly_once: true, format: cloudevents-binary, source: /shop, encoding: {format: avro, registry: {url: "http://r"}}}`)
	require.NoError(t, c.Validate())
	c = decode(t, `{brokers: [a:1], topic: t, encoding: {format: xml, registry: {url: "redis://r"}}}`)
	require.ErrorContains(t, c.Validate(), "encoding.format")
	require.ErrorContains(t, c.Validate(), "encoding.registry.url")
}

func TestAnEncodedRecordIsWrittenExactlyOnce(t *testing.T) {
	t.Parallel()
	cluster, r := kafkatest.Fake(t, kfake.SeedTopics(1, "orders")), newRegistry(t)
	sink := newEncodingSink(t, cluster, r, "orders", exactlyOnce("positions"))
	ledger, _ := openLedger(t, sink, onlyLane)
	wrong := delivery("b")
	wrong.Payload = []byte(`{}`)
	results := ledger.DeliverBatch(t.Context(), []*notification.Delivery{delivery("a"), wrong})
	require.NoError(t, results[0].Err)
	assertClass(t, sinks.ClassInvalid, results[1].Err)
	require.NoError(t, ledger.Commit(t.Context(), []byte("note")))
	require.Equal(t, "\x00\x00\x00\x00\x01\x18", string(cluster.ConsumeCommitted(t, "orders")[0].Value))
}
