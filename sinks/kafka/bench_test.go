package kafka_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

const (
	benchmarkPartitions = 6
	benchmarkKeys       = 10_000
)

// benchmarkBrokers are what the benchmarks write to: a fake broker in this process
// that throws records away, the same with answers that take 2 ms, and the real one
// if the environment names it.
func benchmarkBrokers(b *testing.B) map[string]func(*testing.B) (brokers []string, topic string) {
	fake := func(opts ...kfake.Opt) func(*testing.B) ([]string, string) {
		return func(b *testing.B) ([]string, string) {
			cluster := kfake.MustCluster(append(opts, kfake.NumBrokers(1), kfake.BlackholeProduce(), kfake.SeedTopics(benchmarkPartitions, "orders"))...)
			b.Cleanup(cluster.Close)
			return cluster.ListenAddrs(), "orders"
		}
	}
	brokers := map[string]func(*testing.B) ([]string, string){"fake": fake(), "2ms": fake(kfake.ListenFn(listenSlowly))}
	if os.Getenv(kafkatest.EnvBrokers) != "" {
		brokers["real"] = func(b *testing.B) ([]string, string) {
			cluster := kafkatest.Real(b)
			return cluster.Brokers, cluster.CreateTopic(b, benchmarkPartitions, nil)
		}
	}
	return brokers
}

// BenchmarkDeliver compares the sink with sarama's bare SyncProducer writing the
// same records with the same settings (acks all, idempotent, 400 bytes, a key) to
// the same broker. Both take turns within one run, so that the ratio holds on a
// machine that is busy.
func BenchmarkDeliver(b *testing.B) {
	for name, broker := range benchmarkBrokers(b) {
		for _, inFlight := range []int{64, 256} {
			b.Run(fmt.Sprintf("%s/in flight=%d", name, inFlight), func(b *testing.B) { compare(b, broker, inFlight, 1) })
		}
		for _, size := range []int{100, 500} {
			b.Run(fmt.Sprintf("%s/16 batches of %d", name, size), func(b *testing.B) { compare(b, broker, 16, size) })
		}
	}
}

// BenchmarkKeys makes deliveries as the engine does, one of each key at a time,
// to tell what few keys cost.
func BenchmarkKeys(b *testing.B) {
	for name, broker := range benchmarkBrokers(b) {
		for _, keys := range []int{100, 1000, benchmarkKeys} {
			b.Run(fmt.Sprintf("%s/keys=%d", name, keys), func(b *testing.B) {
				brokers, topic := broker(b)
				deliveries := benchmarkDeliveries()
				r := &rush{
					sink: newSinkAt(b, brokers, topic), keys: keys, workers: 16, size: kafka.DefaultBatchSize,
					delivery: func(key, _ int) *notification.Delivery { return deliveries[key] },
					goesOn:   func(_, count int) bool { return count < b.N/keys },
					failed:   func(err error) { b.Error(err) },
				}
				b.ReportAllocs()
				b.ResetTimer()
				total := 0
				for _, count := range r.run(b) {
					total += count
				}
				b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "records/s")
			})
		}
	}
}

// BenchmarkCompression tells what each codec costs where the CPU is the limit.
func BenchmarkCompression(b *testing.B) {
	for _, codec := range []string{"none", "snappy", "lz4", "zstd", "gzip"} {
		b.Run(codec, func(b *testing.B) {
			brokers, topic := benchmarkBrokers(b)["fake"](b)
			deliver := throughSink(b, brokers, topic, func(c *kafka.Config) { c.Compression = codec })
			b.ResetTimer()
			elapsed := inParallel(b, 16, b.N, kafka.DefaultBatchSize, deliver)
			b.ReportMetric(float64(b.N)/elapsed.Seconds(), "records/s")
		})
	}
}

// compare has both write b.N records each.
func compare(b *testing.B, broker func(*testing.B) ([]string, string), parallel, size int) {
	const turns = 10
	brokers, topic := broker(b)
	contenders := []func([]*notification.Delivery) error{throughSarama(b, brokers, topic), throughSink(b, brokers, topic)}
	var elapsed [2]time.Duration
	b.ResetTimer()
	for turn := range turns {
		n := b.N*(turn+1)/turns - b.N*turn/turns
		for i := range contenders {
			which := (i + turn) % len(contenders)
			elapsed[which] += inParallel(b, parallel, n, size, contenders[which])
		}
	}
	b.ReportMetric(float64(b.N)/elapsed[0].Seconds(), "sarama/s")
	b.ReportMetric(float64(b.N)/elapsed[1].Seconds(), "sink/s")
	b.ReportMetric(float64(elapsed[0])/float64(elapsed[1]), "ratio")
	b.ReportMetric(0, "ns/op") // of both together
}

// inParallel writes n records, so many batches at once.
func inParallel(b *testing.B, parallel, n, size int, write func([]*notification.Delivery) error) time.Duration {
	b.Helper()
	deliveries := benchmarkDeliveries()
	begin := time.Now()
	var (
		next    atomic.Int64
		writers sync.WaitGroup
	)
	for range parallel {
		writers.Go(func() {
			for {
				first := int(next.Add(int64(size))) - size
				if first >= n {
					return
				}
				at := first % (benchmarkKeys - size)
				if err := write(deliveries[at : at+min(size, n-first)]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	return time.Since(begin)
}

func throughSink(b *testing.B, brokers []string, topic string, change ...func(*kafka.Config)) func([]*notification.Delivery) error {
	sink := newSinkAt(b, brokers, topic, change...)
	_, err := sink.Deliver(b.Context(), delivery("connects"))
	require.NoError(b, err)
	return func(batch []*notification.Delivery) error {
		if len(batch) == 1 {
			_, err := sink.Deliver(b.Context(), batch[0])
			return err
		}
		var failed error
		for _, r := range sink.DeliverBatch(b.Context(), batch) {
			failed = errors.Join(failed, r.Err)
		}
		return failed
	}
}

func throughSarama(b *testing.B, brokers []string, topic string) func([]*notification.Delivery) error {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewMurmur2Partitioner
	config.Producer.Idempotent = true
	config.Producer.Flush.Frequency = kafka.DefaultLinger
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(brokers, config)
	require.NoError(b, err)
	b.Cleanup(func() { _ = producer.Close() })
	_, _, err = producer.SendMessage(saramaMessage(topic, delivery("connects")))
	require.NoError(b, err)
	return func(batch []*notification.Delivery) error {
		if len(batch) == 1 {
			_, _, err := producer.SendMessage(saramaMessage(topic, batch[0]))
			return err
		}
		messages := make([]*sarama.ProducerMessage, len(batch))
		for i, d := range batch {
			messages[i] = saramaMessage(topic, d)
		}
		return producer.SendMessages(messages)
	}
}

func saramaMessage(topic string, d *notification.Delivery) *sarama.ProducerMessage {
	header := func(name, value string) sarama.RecordHeader {
		return sarama.RecordHeader{Key: []byte(name), Value: []byte(value)}
	}
	return &sarama.ProducerMessage{
		Topic:     topic,
		Key:       sarama.StringEncoder(d.Key),
		Value:     sarama.ByteEncoder(d.Payload),
		Timestamp: d.OccurredOn,
		Headers: []sarama.RecordHeader{
			header(kafka.HeaderID, d.ID),
			header(kafka.HeaderType, d.Type),
			header(kafka.HeaderVersion, strconv.Itoa(d.Version)),
			header(kafka.HeaderOccurredOn, d.OccurredOn.Format(kafka.OccurredOnLayout)),
			header(kafka.HeaderWatermillUUID, d.ID),
			header(notification.MetadataContentType, d.Metadata[notification.MetadataContentType]),
		},
	}
}

var benchmarkDeliveries = sync.OnceValue(func() []*notification.Delivery {
	list := make([]*notification.Delivery, benchmarkKeys)
	for i := range list {
		list[i] = delivery(fmt.Sprint("order-", i))
		list[i].Metadata = notification.Metadata{notification.MetadataContentType: "application/json"}
		list[i].Payload = fmt.Appendf(nil, `{"order":%d,"note":%q}`, i, strings.Repeat("some text ", 37))
	}
	return list
})

// listenSlowly has each answer take 2 ms.
func listenSlowly(network, address string) (net.Listener, error) {
	listener, err := net.Listen(network, address)
	return slowListener{listener}, err
}

type slowListener struct{ net.Listener }

func (l slowListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return slowConn{conn}, err
}

type slowConn struct{ net.Conn }

func (c slowConn) Write(b []byte) (int, error) {
	time.Sleep(2 * time.Millisecond)
	return c.Conn.Write(b)
}
