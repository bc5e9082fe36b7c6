package kafka_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/envelope"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func collectionOf(members ...*notification.Delivery) *sinks.Collection {
	return &sinks.Collection{Sink: "events", ID: "0198c0de-0000-7000-8000-00000000000c", Group: "jane", Attempt: 2, Members: members}
}

// arrayIn reads the array in a record.
func arrayIn(t *testing.T, r *kgo.Record) (all []notification.Envelope) {
	t.Helper()
	var items []envelope.Message
	require.NoError(t, json.Unmarshal(r.Value, &items))
	for _, item := range items {
		e, err := item.Envelope()
		require.NoError(t, err)
		all = append(all, *e)
	}
	return all
}

func inArrays(c *kafka.Config) { c.Collection = kafka.CollectionArray }

func TestACollectionIsWrittenInOneRequest(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	sink := newSink(t, cluster, topic)
	_, err := sink.Deliver(t.Context(), delivery("first")) // it has the producer's id
	require.NoError(t, err)
	requests := cluster.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Count: -1, Observe: true})
	c := collectionOf(batchOf(12)...)

	receipt, err := sink.DeliverCollection(t.Context(), c)

	require.NoError(t, err)
	assert.Equal(t, notification.Receipt("kafka "+topic+"/0@1 and 11 more"), receipt)
	assert.Equal(t, int64(1), int64(requests.Hits()))
	records := cluster.Consume(t, topic, 13)
	for i, d := range c.Members {
		assert.Equal(t, d.ID, headersOf(records[i+1])["id"])
		assert.Equal(t, d.Key, string(records[i+1].Key))
	}
}

func TestACollectionCanBeAnArray(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	c := collectionOf(delivery("key-1"), delivery("key-2"))
	c.Members[0].Payload = []byte("\x00")
	c.Members[1].OccurredOn = c.Members[1].OccurredOn.Add(-1e9)

	receipt, err := newSink(t, cluster, topic, inArrays).DeliverCollection(t.Context(), c)

	require.NoError(t, err)
	assert.Equal(t, notification.Receipt("kafka "+topic+"/0@0"), receipt)
	r := cluster.Consume(t, topic, 1)[0]
	assert.Equal(t, "jane", string(r.Key))
	assert.Equal(t, c.Members[1].OccurredOn.UnixMilli(), r.Timestamp.UnixMilli())
	assert.Equal(t, map[string]string{
		"id": c.ID, "_watermill_message_uuid": c.ID, "content-type": "application/json",
		"occurred-on": c.Members[1].OccurredOn.UTC().Format(kafka.OccurredOnLayout),
	}, headersOf(r))
	read := arrayIn(t, r)
	require.Len(t, read, 2)
	for i, d := range c.Members {
		assert.Equal(t, d.ID, read[i].ID)
		assert.Equal(t, d.Payload, read[i].Payload)
	}
	_, err = kafka.Envelope(kafka.Record{Key: r.Key, Value: r.Value, Headers: kafka.Headers(r.Headers)})
	require.ErrorIs(t, err, kafka.ErrRecord, "it is not one notification")
}

func TestNothingIsWrittenOfACollectionWithARecordThatCannotBe(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	c := collectionOf(batchOf(3)...)
	c.Members[2].Payload = make([]byte, 2<<20)
	for _, sink := range []*kafka.Sink{newSink(t, cluster, topic), newSink(t, cluster, topic, inArrays)} {
		_, err := sink.DeliverCollection(t.Context(), c)
		require.ErrorIs(t, err, kafka.ErrTooLarge)
		require.Equal(t, sinks.ClassInvalid, sinktest.Class(err))
	}
	assert.Empty(t, cluster.ConsumeAll(t, topic, 0))
}

func TestACollectionHasTheErrorOfTheRecordThatTheBrokerRefuses(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, map[string]string{"max.message.bytes": "40000"})
	c := collectionOf(batchOf(3)...)
	for _, d := range c.Members {
		d.Key = "one"
	}
	c.Members[1].Payload = make([]byte, 50_000)
	_, err := newSink(t, cluster, topic).DeliverCollection(t.Context(), c)
	require.Equal(t, sinks.ClassPermanent, sinktest.Class(err), "%v", err)
	require.ErrorContains(t, err, "max.message.bytes")
}

func TestACollectionGoesToOneTopic(t *testing.T) {
	t.Parallel()
	c := collectionOf(batchOf(2)...)
	c.Members[1].Type = "order.paid"
	for _, change := range []func(*kafka.Config){func(*kafka.Config) {}, inArrays} {
		_, err := newSinkAt(t, []string{"127.0.0.1:1"}, "shop.{{.Type}}", change).DeliverCollection(t.Context(), c)
		require.Equal(t, sinks.ClassInvalid, sinktest.Class(err))
		differ := new(sinks.DifferError)
		require.ErrorAs(t, err, &differ)
		assert.Equal(t, &sinks.DifferError{Setting: "topic", One: c.Members[0].ID, Other: c.Members[1].ID}, differ)
	}
}
