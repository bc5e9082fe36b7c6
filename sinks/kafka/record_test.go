package kafka_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/sinks/kafka/watermill"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

func TestARecordCarriesTheNotification(t *testing.T) {
	t.Parallel()
	testARecordCarriesTheNotification(t, kafkatest.Fake(t))
}

func testARecordCarriesTheNotification(t *testing.T, cluster *kafkatest.Cluster) {
	topic := cluster.CreateTopic(t, 6, nil)
	sink := newSink(t, cluster, topic)
	d := delivery("order-17")
	d.Payload = []byte("{\"total\": 12}\x00\xff")
	d.Metadata = notification.Metadata{
		notification.MetadataContentType: "application/json",
		"type":                           "of the application",
	}

	receipt, err := sink.Deliver(t.Context(), d)
	require.NoError(t, err)

	r := cluster.Consume(t, topic, 1)[0]
	assert.Equal(t, d.Payload, r.Value)
	assert.Equal(t, "order-17", string(r.Key))
	assert.Equal(t, d.OccurredOn.Truncate(time.Millisecond), r.Timestamp.UTC())
	assert.Equal(t, map[string]string{
		"id":                      d.ID,
		"type":                    "order.placed",
		"version":                 "2",
		"occurred-on":             d.OccurredOn.Format("2006-01-02T15:04:05.000000Z"),
		"_watermill_message_uuid": d.ID,
		"content-type":            "application/json",
		"metadata-type":           "of the application",
	}, headersOf(r))
	assert.Equal(t, fmt.Sprintf("kafka %s/%d@%d", topic, r.Partition, r.Offset), string(receipt))
}

func TestParallelDeliveriesAllArriveWithTheirReceipts(t *testing.T) {
	t.Parallel()
	testParallelDeliveriesAllArriveWithTheirReceipts(t, kafkatest.Fake(t))
}

func testParallelDeliveriesAllArriveWithTheirReceipts(t *testing.T, cluster *kafkatest.Cluster) {
	const inFlight, total = 256, 4096
	topic := cluster.CreateTopic(t, 6, nil)
	sink := newSink(t, cluster, topic)

	receipts := make([]string, total) // by the number in the record
	next := make(chan int)
	var workers sync.WaitGroup
	for range inFlight {
		workers.Go(func() {
			for i := range next {
				d := delivery("")
				d.Payload = fmt.Appendf(nil, "%d", i)
				receipt, err := sink.Deliver(t.Context(), d)
				assert.NoError(t, err)
				receipts[i] = string(receipt)
			}
		})
	}
	for i := range total {
		next <- i
	}
	close(next)
	workers.Wait()

	records := cluster.Consume(t, topic, total)
	require.Len(t, records, total)
	partitions := map[int32]bool{}
	for _, r := range records {
		var i int
		_, err := fmt.Sscan(string(r.Value), &i)
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("kafka %s/%d@%d", topic, r.Partition, r.Offset), receipts[i])
		assert.Nil(t, r.Key)
		partitions[r.Partition] = true
	}
	assert.Len(t, partitions, 6, "records without a key spread over all partitions")
}

func TestAnEmptyPayloadIsNotATombstone(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	d := delivery("k")
	d.Payload = nil
	_, err := newSink(t, cluster, topic).Deliver(t.Context(), d)
	require.NoError(t, err)
	value := cluster.Consume(t, topic, 1)[0].Value
	assert.NotNil(t, value)
	assert.Empty(t, value)
}

func TestKeysHaveTheSamePartitionAsWithTheJavaClient(t *testing.T) {
	t.Parallel()
	eachClient(t, testKeysHaveTheSamePartitionAsWithTheJavaClient)
}

func testKeysHaveTheSamePartitionAsWithTheJavaClient(t *testing.T, client func(*kafka.Config)) {
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 24, nil)
	sink := newSink(t, cluster, topic, client)
	for i := range 50 {
		_, err := sink.Deliver(t.Context(), delivery(fmt.Sprint("order-", i)))
		require.NoError(t, err)
	}
	// franz-go's default partitioner is Kafka's: murmur2, checked against Java.
	java := kgo.StickyKeyPartitioner(nil).ForTopic(topic)
	for _, r := range cluster.Consume(t, topic, 50) {
		assert.Equal(t, java.Partition(&kgo.Record{Key: r.Key}, 24), int(r.Partition), "%s", r.Key)
	}
}

// prefixed is a custom marshaler.
type prefixed struct{ wmkafka.DefaultMarshaler }

func (prefixed) Marshal(topic string, m *message.Message) (*sarama.ProducerMessage, error) {
	r, err := wmkafka.DefaultMarshaler{}.Marshal(topic, m)
	r.Key, r.Value = sarama.StringEncoder("mine"), sarama.ByteEncoder("> "+string(m.Payload))
	return r, err
}

func TestAProgramsMarshalerAndDecoratorsAreUsed(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	decorate := message.MessageTransformPublisherDecorator(func(m *message.Message) { m.Metadata.Set("decorated", "yes") })
	d := delivery("k")
	receipt, err := newSink(t, cluster, topic, func(c *kafka.Config) {
		c.Library = watermill.Library{Marshaler: prefixed{}, Decorators: []message.PublisherDecorator{decorate}}
	}).Deliver(t.Context(), d)
	require.NoError(t, err)
	r := cluster.Consume(t, topic, 1)[0]
	assert.Equal(t, "kafka "+topic+"/0@0", string(receipt))
	assert.Equal(t, "mine", string(r.Key))
	assert.Equal(t, "> "+string(d.Payload), string(r.Value))
	assert.Equal(t, "yes", headersOf(r)["decorated"])
	assert.Equal(t, d.Type, headersOf(r)["type"])
}

func TestAWatermillSubscriberReadsTheRecord(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	d := delivery("k")
	_, err := newSink(t, cluster, topic).Deliver(t.Context(), d)
	require.NoError(t, err)

	config := wmkafka.DefaultSaramaSubscriberConfig()
	config.Consumer.Offsets.Initial = -2 // the oldest
	subscriber, err := wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
		Brokers:               cluster.Brokers,
		Unmarshaler:           wmkafka.DefaultMarshaler{},
		OverwriteSaramaConfig: config,
	}, nil)
	require.NoError(t, err)
	defer subscriber.Close()
	messages, err := subscriber.Subscribe(t.Context(), topic)
	require.NoError(t, err)
	m := <-messages
	m.Ack()
	assert.Equal(t, d.ID, m.UUID)
	assert.Equal(t, d.Type, m.Metadata.Get(kafka.HeaderType))
	assert.Equal(t, d.Payload, []byte(m.Payload))
}

func TestOnlyTheRecordThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	testOnlyTheRecordThatIsTooLargeIsRefused(t, kafkatest.Fake(t))
}

func testOnlyTheRecordThatIsTooLargeIsRefused(t *testing.T, cluster *kafkatest.Cluster) {
	const total, large = 64, 17
	topic := cluster.CreateTopic(t, 1, map[string]string{"max.message.bytes": "8000"})
	sink := newSink(t, cluster, topic)

	var workers sync.WaitGroup
	for i := range total {
		workers.Go(func() {
			d := delivery(fmt.Sprint("key-", i))
			d.Payload = []byte(strings.Repeat("x", 1000))
			if i != large {
				_, err := sink.Deliver(t.Context(), d)
				assert.NoError(t, err)
				return
			}
			d.Payload = []byte(strings.Repeat("x", 10_000))
			_, err := sink.Deliver(t.Context(), d)
			assertClass(t, sinks.ClassPermanent, err)
		})
	}
	workers.Wait()

	records := cluster.Consume(t, topic, total-1)
	assert.Len(t, records, total-1)
	for _, r := range records {
		assert.NotEqual(t, fmt.Sprint("key-", large), string(r.Key))
	}
}
