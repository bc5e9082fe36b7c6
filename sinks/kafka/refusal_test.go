package kafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// The broker answers every request of one kind with the error. Once the error is removed, the same
// delivery succeeds.
func TestEachErrorOfABrokerHasItsClass(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		const (
			permanent, transient, unavailable = sinks.ClassPermanent, sinks.ClassTransient, sinks.ClassUnavailable
		)
		for _, c := range []struct {
			of                   kmsg.Key
			err                  *kerr.Error
			configured, fromData sinks.Class
		}{
			{kmsg.Produce, kerr.UnknownTopicOrPartition, unavailable, transient},
			{kmsg.Produce, kerr.TopicAuthorizationFailed, unavailable, transient},
			{kmsg.Produce, kerr.InvalidTopicException, unavailable, permanent},
			{kmsg.Produce, kerr.ClusterAuthorizationFailed, unavailable, unavailable},
			{kmsg.Produce, kerr.UnsupportedVersion, unavailable, unavailable},
			{kmsg.Produce, kerr.UnsupportedForMessageFormat, unavailable, transient},
			{kmsg.Produce, kerr.NotEnoughReplicas, unavailable, unavailable},
			{kmsg.Produce, kerr.NotEnoughReplicasAfterAppend, unavailable, unavailable},
			{kmsg.Produce, kerr.NotLeaderForPartition, unavailable, unavailable},
			{kmsg.Produce, kerr.LeaderNotAvailable, unavailable, unavailable},
			{kmsg.Produce, kerr.RequestTimedOut, unavailable, unavailable},
			{kmsg.Produce, kerr.NetworkException, unavailable, unavailable},
			{kmsg.Produce, kerr.KafkaStorageError, unavailable, unavailable},
			{kmsg.Produce, kerr.OutOfOrderSequenceNumber, unavailable, unavailable},
			{kmsg.Produce, kerr.InvalidProducerEpoch, unavailable, unavailable},
			{kmsg.Produce, kerr.UnknownServerError, transient, transient},
			{kmsg.Produce, kerr.CorruptMessage, transient, transient},
			{kmsg.Produce, kerr.MessageTooLarge, permanent, permanent},
			{kmsg.Produce, kerr.RecordListTooLarge, permanent, permanent},
			{kmsg.Produce, kerr.InvalidRecord, permanent, permanent},
			{kmsg.Produce, kerr.InvalidTimestamp, permanent, permanent},

			{kmsg.Metadata, kerr.UnknownTopicOrPartition, unavailable, transient},
			{kmsg.Metadata, kerr.TopicAuthorizationFailed, unavailable, transient},
			{kmsg.Metadata, kerr.InvalidTopicException, unavailable, permanent},
			{kmsg.Metadata, kerr.LeaderNotAvailable, unavailable, unavailable},
			{kmsg.Metadata, kerr.InvalidReplicationFactor, unavailable, transient},

			{kmsg.InitProducerID, kerr.ClusterAuthorizationFailed, unavailable, unavailable},
			{kmsg.InitProducerID, kerr.CoordinatorNotAvailable, unavailable, unavailable},
			{kmsg.InitProducerID, kerr.CoordinatorLoadInProgress, unavailable, unavailable},
			{kmsg.InitProducerID, kerr.NotCoordinator, unavailable, unavailable},
			{kmsg.InitProducerID, kerr.UnknownServerError, unavailable, unavailable},
		} {
			for topic, want := range map[string]sinks.Class{"orders": c.configured, "{{.Key}}": c.fromData} {
				t.Run(fmt.Sprintf("%s of %s to %s", c.err.Message, c.of.Name(), topic), func(t *testing.T) {
					t.Parallel()
					cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
					sink := newSink(t, cluster, topic, client)
					fault := cluster.Fake.Fault(kfake.Fault{
						Keys: []kmsg.Key{c.of}, Err: c.err, Count: -1, TopLevel: c.of == kmsg.InitProducerID,
					})
					_, err := sink.Deliver(t.Context(), delivery("orders"))
					assertClass(t, want, err)
					fault.Remove()
					deliverAtLast(t, sink, delivery("orders"), func(err error) { assertClass(t, want, err) })
				})
			}
		}
	})
}

func TestADeletedTopicIsUnavailable(t *testing.T) {
	t.Parallel()
	testADeletedTopicIsUnavailable(t, kafkatest.Fake(t))
}

func testADeletedTopicIsUnavailable(t *testing.T, cluster *kafkatest.Cluster) {
	topic := cluster.CreateTopic(t, 4, nil)
	sink := newSink(t, cluster, topic)
	_, err := sink.Deliver(t.Context(), delivery("k"))
	require.NoError(t, err)

	cluster.DeleteTopic(t, topic)
	require.Eventually(t, func() bool { // a real broker deletes the topic with a delay
		_, err := sink.Deliver(t.Context(), delivery("k"))
		return err != nil
	}, time.Minute, time.Millisecond)
	classes := make(map[sinks.Class]int)
	for range 3 {
		for _, r := range sink.DeliverBatch(t.Context(), batchOf(200)) {
			class, _ := sinks.Classify(r.Err)
			classes[class]++
		}
	}
	assert.Equal(t, map[sinks.Class]int{sinks.ClassUnavailable: 600}, classes)
	assertClass(t, sinks.ClassUnavailable, sink.CheckHealth(t.Context()))

	cluster.CreateAgain(t, topic)
	deliverAtLast(t, sink, delivery("k"), func(err error) { assertClass(t, sinks.ClassUnavailable, err) })
}

// Failed records of the deleted topic do not affect the records of other topics.
func TestADeletedTopicFromDataDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		cluster := kafkatest.Fake(t, kfake.SeedTopics(2, "here", "gone"))
		sink := newSink(t, cluster, `{{.Metadata.topic}}`, client, shortly)
		batch := batchOf(40)
		for i, d := range batch {
			d.Metadata = map[string]string{"topic": []string{"here", "gone"}[i%2]}
		}
		for _, r := range deliverTogether(t, sink, batch) {
			require.NoError(t, r.Err)
		}
		cluster.DeleteTopic(t, "gone")
		for range 4 { // sarama's breaker opens at the third failure
			for i, r := range deliverTogether(t, sink, batch) {
				if i%2 == 0 {
					assert.NoError(t, r.Err)
				} else {
					assertClass(t, sinks.ClassTransient, r.Err)
				}
			}
		}
	})
}

func TestManyMissingTopicsFromDataDoNotAffectOthers(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		cluster := kafkatest.Fake(t, kfake.SeedTopics(2, "here"))
		sink := newSink(t, cluster, `{{.Metadata.topic}}`, client, shortly)
		batch := batchOf(200)
		for i, d := range batch {
			d.Metadata = map[string]string{"topic": []string{fmt.Sprintf("missing-%d", i), "missing", "here", "here"}[i%4]}
		}
		for i, r := range deliverTogether(t, sink, batch) {
			if batch[i].Metadata["topic"] == "here" {
				assert.NoError(t, r.Err)
			} else {
				assertClass(t, sinks.ClassTransient, r.Err)
			}
		}
	})
}

// The timeout of the delivery is shorter than that of the client. The error is still unavailable.
func TestADeliveryThatTimesOutIsUnavailableIfTheBrokerIsSilent(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		for _, topic := range []string{"orders", "{{.Type}}"} {
			t.Run(topic, func(t *testing.T) {
				cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders", "order.placed"))
				second := func(c *kafka.Config) { c.Timeout = time.Second }
				connected, connecting := newSink(t, cluster, topic, client, second), newSink(t, cluster, topic, client, second)
				deliverAtLast(t, connected, delivery("k"), func(error) {})
				cluster.Fake.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
					cluster.Fake.KeepControl()
					return nil, nil, true // the broker reads requests but never answers
				})
				for _, sink := range []*kafka.Sink{connected, connecting} {
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					defer cancel()
					_, err := sink.Deliver(ctx, delivery("k"))
					assertClass(t, sinks.ClassUnavailable, err)
				}
			})
		}
	})
}
