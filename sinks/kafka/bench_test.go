package kafka_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/kafka"
)

const (
	benchmarkInFlight   = 256
	benchmarkPartitions = 6
	benchmarkKeys       = 5000
)

// BenchmarkDeliver compares the sink with sarama's bare SyncProducer writing the
// same records with the same settings: 256 in flight, 400 bytes, a key, to a
// fake broker in this process that throws them away. Ratios within one run are
// what counts.
func BenchmarkDeliver(b *testing.B) {
	for _, idempotent := range []bool{true, false} {
		b.Run(fmt.Sprintf("idempotent=%v", idempotent), func(b *testing.B) {
			b.Run("bare sarama", func(b *testing.B) { benchmarkSarama(b, idempotent) })
			b.Run("sink", func(b *testing.B) { benchmarkSink(b, idempotent, "none") })
		})
	}
	for _, compression := range []string{"snappy", "lz4", "zstd", "gzip"} {
		b.Run("compression="+compression, func(b *testing.B) { benchmarkSink(b, true, compression) })
	}
}

func benchmarkSink(b *testing.B, idempotent bool, compression string) {
	sink := newSinkAt(b, benchmarkCluster(b), "orders", func(c *kafka.Config) {
		c.Idempotent, c.Compression = idempotent, compression
	})
	deliveries := benchmarkDeliveries()
	inFlight(b, func(i int64) error {
		_, err := sink.Deliver(b.Context(), deliveries[i%benchmarkKeys])
		return err
	})
}

func benchmarkSarama(b *testing.B, idempotent bool) {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewMurmur2Partitioner
	config.Producer.Idempotent = idempotent
	if idempotent {
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(benchmarkCluster(b), config)
	require.NoError(b, err)
	b.Cleanup(func() { _ = producer.Close() })
	deliveries := benchmarkDeliveries()
	header := func(name, value string) sarama.RecordHeader {
		return sarama.RecordHeader{Key: []byte(name), Value: []byte(value)}
	}
	inFlight(b, func(i int64) error {
		d := deliveries[i%benchmarkKeys]
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{
			Topic:     "orders",
			Key:       sarama.StringEncoder(d.Key),
			Value:     sarama.ByteEncoder(d.Payload),
			Timestamp: d.OccurredOn,
			Headers: []sarama.RecordHeader{
				header(kafka.HeaderID, d.ID),
				header(kafka.HeaderType, d.Type),
				header(kafka.HeaderVersion, fmt.Sprint(d.Version)),
				header(kafka.HeaderOccurredOn, d.OccurredOn.Format(kafka.OccurredOnLayout)),
				header(kafka.HeaderWatermillUUID, d.ID),
				header(notification.MetadataContentType, d.Metadata[notification.MetadataContentType]),
			},
		})
		return err
	})
}

func benchmarkCluster(b *testing.B) []string {
	b.Helper()
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(benchmarkPartitions, "orders"), kfake.BlackholeProduce())
	b.Cleanup(cluster.Close)
	return cluster.ListenAddrs()
}

func benchmarkDeliveries() []*notification.Delivery {
	list := make([]*notification.Delivery, benchmarkKeys)
	for i := range list {
		list[i] = delivery(fmt.Sprint("order-", i))
		list[i].Metadata = notification.Metadata{notification.MetadataContentType: "application/json"}
		list[i].Payload = fmt.Appendf(nil, `{"order":%d,"note":%q}`, i, strings.Repeat("some text ", 37))
	}
	return list
}

// inFlight calls deliver b.N times, 256 at once.
func inFlight(b *testing.B, deliver func(i int64) error) {
	b.Helper()
	require.NoError(b, deliver(0)) // connects
	var next atomic.Int64
	b.SetParallelism(benchmarkInFlight / runtime.GOMAXPROCS(0))
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := deliver(next.Add(1)); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
