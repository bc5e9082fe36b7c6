package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

func TestABatchArrivesWithItsReceipts(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	requests := cluster.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Count: -1, Observe: true})
	testABatchArrivesWithItsReceipts(t, cluster)
	assert.Less(t, requests.Hits(), 20, "requests for a batch of 500")
}

func testABatchArrivesWithItsReceipts(t *testing.T, cluster *kafkatest.Cluster) {
	const size = 500
	topic := cluster.CreateTopic(t, 6, nil)
	batch := batchOf(size)
	results := newSink(t, cluster, topic).DeliverBatch(t.Context(), batch)
	require.Len(t, results, size)
	ids := make(map[string]string, size) // by receipt
	for i, r := range results {
		require.NoError(t, r.Err)
		ids[string(r.Receipt)] = batch[i].ID
	}
	records := cluster.Consume(t, topic, size)
	require.Len(t, records, size)
	for _, r := range records {
		assert.Equal(t, ids[fmt.Sprintf("kafka %s/%d@%d", topic, r.Partition, r.Offset)], headersOf(r)["id"])
	}
}

func TestOnlyTheLargeRecordsOfABatchAreRejected(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	requests := cluster.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Count: -1, Observe: true})
	testOnlyTheLargeRecordsOfABatchAreRejected(t, cluster)
	assert.Less(t, requests.Hits(), 150, "requests: rejected records are not sent one by one")
}

func testOnlyTheLargeRecordsOfABatchAreRejected(t *testing.T, cluster *kafkatest.Cluster) {
	const size = 300
	topic := cluster.CreateTopic(t, 1, map[string]string{"max.message.bytes": "40000"})
	large := map[int]bool{0: true, 17: true, 299: true}
	batch := batchOf(size)
	for i, d := range batch {
		d.Payload = []byte(strings.Repeat("x", 1000)) // 300 of these are too large together
		if large[i] {
			d.Payload = []byte(strings.Repeat("x", 50_000))
		}
	}
	for i, r := range newSink(t, cluster, topic).DeliverBatch(t.Context(), batch) {
		if large[i] {
			assertClass(t, sinks.ClassPermanent, r.Err)
			continue
		}
		assert.NoError(t, r.Err)
	}
	assert.Len(t, cluster.Consume(t, topic, size-len(large)), size-len(large))
}

func TestARecordAboveMaxMessageBytesDoesNotFailItsBatch(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	sink := newSink(t, cluster, cluster.CreateTopic(t, 1, nil), func(c *kafka.Config) { c.MaxMessageBytes = 2000 })
	batch := batchOf(3)
	batch[1].Payload = make([]byte, 3000)
	results := sink.DeliverBatch(t.Context(), batch)
	assert.NoError(t, results[0].Err)
	assertClass(t, sinks.ClassInvalid, results[1].Err)
	assert.NoError(t, results[2].Err)
}

func TestABatchGoesToManyTopics(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "one", "two"))
	batch := batchOf(6)
	for i, topic := range []string{"one", "two", "nobody-made-this", "not legal", "one", "neither-this"} {
		batch[i].Metadata = notification.Metadata{"topic": topic}
	}
	results := newSink(t, cluster, "{{.Metadata.topic}}").DeliverBatch(t.Context(), batch)
	for i, receipt := range map[int]string{0: "kafka one/0@0", 1: "kafka two/0@0", 4: "kafka one/0@1"} {
		assert.NoError(t, results[i].Err)
		assert.EqualValues(t, receipt, results[i].Receipt)
	}
	assertClass(t, sinks.ClassTransient, results[2].Err)
	assertClass(t, sinks.ClassInvalid, results[3].Err)
	assert.ErrorIs(t, results[3].Err, kafka.ErrTopic)
	assertClass(t, sinks.ClassTransient, results[5].Err)
	assert.ErrorContains(t, results[5].Err, "topic neither-this")
}

func TestOneRefusedPartitionFailsItsRecordsOnly(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 4, nil)
	sink := newSink(t, cluster, topic)
	cluster.Fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: []int32{2}, Err: kerr.UnknownServerError, Count: -1,
	})
	failed := 0
	for _, r := range sink.DeliverBatch(t.Context(), batchOf(200)) {
		if r.Err != nil {
			assertClass(t, sinks.ClassTransient, r.Err)
			failed++
		}
	}
	assert.Greater(t, failed, 20)
	for _, r := range cluster.Consume(t, topic, 200-failed) {
		assert.NotEqual(t, int32(2), r.Partition)
	}
}

// The batch is so large and a request so small that the broker refuses a request while the
// client is still receiving records of the key.
func TestNoRecordOfAKeyIsStoredAfterItsFirstFailure(t *testing.T) {
	t.Parallel()
	for name, acks := range map[string]string{"idempotent": kafka.AcksAll, "not idempotent": kafka.AcksLeader} {
		t.Run(name, func(t *testing.T) {
			const size = 5000
			cluster := kafkatest.Fake(t)
			topic := cluster.CreateTopic(t, 1, nil)
			sink := newSink(t, cluster, topic, func(c *kafka.Config) { c.MaxMessageBytes, c.Acks = 2000, acks })
			_, err := sink.Deliver(t.Context(), delivery("connects"))
			require.NoError(t, err)
			var requests atomic.Int64
			cluster.Fake.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.UnknownServerError, Count: 1,
				When: func(kmsg.Request) bool { return requests.Add(1) == 3 },
			})
			batch := make([]*notification.Delivery, size)
			for i := range batch {
				batch[i] = numbered(7, i)
			}
			results := sink.DeliverBatch(t.Context(), batch)
			delivered := slices.IndexFunc(results, func(r sinks.Result) bool { return r.Err != nil })
			require.Positive(t, delivered)
			for _, r := range results[delivered:] {
				require.Error(t, r.Err)
			}
			records := cluster.ConsumeAll(t, topic, 1+delivered)
			require.Len(t, records, 1+delivered)
			for i, r := range records[1:] {
				require.Equal(t, strconv.Itoa(i), string(r.Value))
			}
		})
	}
}

func TestACancelledBatchPublishesNothing(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	sink := newSink(t, cluster, topic)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, r := range sink.DeliverBatch(ctx, batchOf(3)) {
		assert.ErrorIs(t, r.Err, context.Canceled)
	}
	_, err := sink.Deliver(t.Context(), delivery("wanted"))
	require.NoError(t, err)
	assert.Equal(t, "wanted", string(cluster.Consume(t, topic, 1)[0].Key))
}

func TestBatchesEndWithinTheTimeoutIfABrokerStopsAnswering(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*kafkatest.Cluster){
		"silent": func(*kafkatest.Cluster) {},
		"dies":   func(c *kafkatest.Cluster) { c.Stop(t) },
	} {
		t.Run(name, func(t *testing.T) {
			cluster := kafkatest.Fake(t)
			sink := newSink(t, cluster, cluster.CreateTopic(t, 6, nil), func(c *kafka.Config) { c.Timeout = 2 * time.Second })
			deliverAtLast(t, sink, delivery("connects"), func(error) {})
			arrived := make(chan struct{})
			var once sync.Once
			cluster.Fake.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
				cluster.Fake.KeepControl()
				if r.Key() == int16(kmsg.Produce) {
					once.Do(func() { close(arrived) })
				}
				return nil, nil, true // the broker reads requests but never answers
			})
			var workers sync.WaitGroup
			begin := time.Now()
			for range 16 {
				workers.Go(func() {
					for _, r := range sink.DeliverBatch(t.Context(), batchOf(500)) {
						assertClass(t, sinks.ClassUnavailable, r.Err)
					}
				})
			}
			await(t, arrived, "no request came")
			end(cluster)
			workers.Wait()
			assert.Less(t, time.Since(begin), time.Minute)
			t.Log("ended after", time.Since(begin))
		})
	}
}

func TestBatchesAreOrderedAndDoNotWait(t *testing.T) {
	t.Parallel()
	assert.Equal(t, sinks.BatchLimits{Size: 500, Ordered: true}, newSinkAt(t, []string{"a:1"}, "orders").BatchLimits())
	assert.Equal(t, sinks.BatchLimits{Size: 1}, newSinkAt(t, []string{"a:1"}, "orders", withWatermill).BatchLimits())
}

// batchOf returns deliveries with different keys.
func batchOf(size int) []*notification.Delivery {
	batch := make([]*notification.Delivery, size)
	for i := range batch {
		batch[i] = delivery(fmt.Sprint("key-", i))
	}
	return batch
}

// deliverTogether delivers at once, in batches within the sink's limit.
func deliverTogether(t *testing.T, sink *kafka.Sink, all []*notification.Delivery) []sinks.Result {
	results := make([]sinks.Result, len(all))
	var delivering sync.WaitGroup
	size := sink.BatchLimits().Size
	for at := 0; at < len(all); at += size {
		delivering.Go(func() { copy(results[at:], sink.DeliverBatch(t.Context(), all[at:min(at+size, len(all))])) })
	}
	delivering.Wait()
	return results
}
