package kafka_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
	"github.com/waybill-go/waybill/sinks/large"
)

func withTombstones(c *kafka.Config) { c.Tombstones = []string{"customer.erased", "gone.*"} }

// of returns a delivery of a type, with a key and metadata.
func of(typ string) *notification.Delivery {
	d := delivery("c-1")
	d.Type, d.Metadata = typ, notification.Metadata{"content-type": "application/json"}
	return d
}

func TestATombstoneDeletesItsKey(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		testATombstoneDeletesItsKey(t, kafkatest.Fake(t), client)
	})
}

func testATombstoneDeletesItsKey(t *testing.T, cluster *kafkatest.Cluster, change ...func(*kafka.Config)) {
	topic := cluster.CreateTopic(t, 1, map[string]string{"cleanup.policy": "compact"})
	sink := newSink(t, cluster, topic, append(change, withTombstones)...)
	erased := of("customer.erased")
	deliverAll(t, sink, of("customer.changed"))
	deliverAll(t, sink, erased)
	records := cluster.Consume(t, topic, 2)
	require.NotNil(t, records[0].Value)
	require.Nil(t, records[1].Value)
	require.Equal(t, "c-1", string(records[1].Key))
	want := *erased.Envelope
	want.Payload = nil
	require.Equal(t, want, envelopeOf(t, records[1]), "the headers stay")

	erased.Key = ""
	_, err := sink.Deliver(t.Context(), erased)
	assertClass(t, sinks.ClassInvalid, err)
	require.ErrorIs(t, err, kafka.ErrTombstone)
	require.ErrorContains(t, err, "the type is customer.erased (publish it with a key, or remove its type from tombstones)")
	require.Equal(t, 2, cluster.Count(t, topic))
}

func TestOnlyTheNamedTypesAreTombstones(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
	sink := newSink(t, cluster, "orders", withTombstones)
	types := []string{"gone.customer", "gone.a.b", "gone", "goner.x", "customer.erased.all", "customer"}
	for _, typ := range types {
		deliverAll(t, sink, of(typ))
	}
	empty := of("order.placed")
	empty.Payload = nil
	deliverAll(t, sink, empty)
	for i, r := range cluster.Consume(t, "orders", len(types)+1) {
		require.Equal(t, i < 2, r.Value == nil, "%v", headersOf(r))
	}
}

func TestATombstoneIsNeitherEncodedNorStored(t *testing.T) {
	t.Parallel()
	cluster, r := kafkatest.Fake(t, kfake.SeedTopics(1, "orders")), newRegistry(t)
	sink, folder := newStoringSink(t, cluster.Brokers, withTombstones, exactlyOnce("positions"), func(c *kafka.Config) {
		c.Format, c.Source = kafka.FormatBinary, "/shop"
		c.Encoding = encoding.Config{Format: encoding.FormatAvro, Register: true, Registry: encoding.Registry{URL: r.URL()}}
	})
	ledger, _ := openLedger(t, sink, onlyLane)
	d := largeDelivery("c-1")
	d.Type = "customer.erased"
	deliverAll(t, ledger, d)
	require.NoError(t, ledger.Commit(t.Context(), nil))
	record := cluster.ConsumeCommitted(t, "orders")[0]
	require.Nil(t, record.Value)
	require.NotContains(t, headersOf(record), large.AttributeSize)
	require.Zero(t, folder.Puts.Load())
	require.Nil(t, envelopeOf(t, record).Payload)
}

func TestMistakesInTombstonesAreReported(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`tombstones: ["*"]`:                       `tombstones: "*": write a type or the beginning of types followed by .*`,
		`tombstones: ["*.erased"]`:                `tombstones: "*.erased"`,
		`tombstones: [""]`:                        `tombstones: ""`,
		`tombstones: [a.b], collection: array`:    "tombstones: a record with an array of notifications deletes no key; use collection: records",
		`large: {above: 1KiB}`:                    "large.above: is for large.store",
		`large: {store: "s3://b", above: "2MiB"}`: "large.above: 2MiB is more than the 1048576 bytes",
	} {
		c := decode(t, `{brokers: [a:1], topic: t, `+given+`}`)
		require.ErrorContains(t, c.Validate(), want)
	}
	c := decode(t, `{brokers: [a:1], topic: t, tombstones: [a.*.b, c.d, "*"], collection: array}`)
	err := c.Validate()
	for _, want := range []string{
		`tombstones: "a.*.b": write a type or the beginning of types followed by .*, which is allowed only at the end`,
		`tombstones: "*": write`,
		"tombstones: a record with an array",
	} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "c.d")
}
