//go:build unix

package kafka_test

import (
	"fmt"
	"iter"
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
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/internal/turns"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

const (
	benchmarkPartitions = 6
	benchmarkKeys       = 10_000
	benchmarkBatch      = 500
)

// benchmarkBrokers are the brokers of the benchmarks: a fake one in this process that discards
// records, the same with answers that take 2 ms, and the real one if the environment names it.
func benchmarkBrokers(b *testing.B) map[string]func(*testing.B) (brokers []string, topic string) {
	fake := func(opts ...kfake.Opt) func(*testing.B) ([]string, string) {
		return func(b *testing.B) ([]string, string) {
			cluster := kfake.MustCluster(append(opts, kfake.NumBrokers(1), kfake.BlackholeProduce(), kfake.SeedTopics(benchmarkPartitions, "orders"))...)
			b.Cleanup(cluster.Close)
			return cluster.ListenAddrs(), "orders"
		}
	}
	brokers := map[string]func(*testing.B) ([]string, string){"fake": fake(), "2ms": fake(listening(func(conn net.Conn) net.Conn { return slowConn{conn} }))}
	if os.Getenv(kafkatest.EnvBrokers) != "" {
		brokers["real"] = func(b *testing.B) ([]string, string) {
			cluster := kafkatest.Real(b)
			return cluster.Brokers, cluster.CreateTopic(b, benchmarkPartitions, nil)
		}
	}
	return brokers
}

// BenchmarkDeliver compares the sink, with each of its clients, with the client libraries alone:
// franz-go with Produce and sarama with its AsyncProducer. All write the same records with the
// same settings (acks all, idempotent, 400 bytes, a key) to the same broker. The sink gets 16
// batches at a time, as from the engine.
func BenchmarkDeliver(b *testing.B) {
	for name, broker := range benchmarkBrokers(b) {
		for _, keys := range []int{1_000, benchmarkKeys} {
			b.Run(fmt.Sprintf("%s/keys=%d", name, keys), func(b *testing.B) {
				brokers, topic := broker(b)
				deliveries := benchmarkDeliveries(keys)
				turns.Compare(b, 1,
					turns.Contender{Name: "franz-go", Do: throughFranz(b, brokers, topic, deliveries)},
					turns.Contender{Name: "sarama", Do: throughSarama(b, brokers, topic, deliveries)},
					turns.Contender{Name: "sink", Do: throughSink(b, brokers, topic, deliveries)},
					turns.Contender{Name: "watermill", Part: 50, Do: throughSink(b, brokers, topic, deliveries, withWatermill)},
				)
			})
		}
	}
}

// BenchmarkLedger compares the sink with and without transactions. It delivers 16 batches at a
// time, and commits after every 5,000 records, when all batches have ended.
func BenchmarkLedger(b *testing.B) {
	real, has := benchmarkBrokers(b)["real"]
	if !has {
		b.Skip("needs a real cluster: bash .ci/test-kafka starts one")
	}
	brokers, topic := real(b)
	deliveries := benchmarkDeliveries(benchmarkKeys)
	turns.Compare(b, 1,
		turns.Contender{Name: "sink", Do: throughSink(b, brokers, topic, deliveries)},
		turns.Contender{Name: "ledger", Do: throughLedger(b, brokers, topic, deliveries)},
	)
}

func throughLedger(b *testing.B, brokers []string, topic string, deliveries [][]*notification.Delivery) func(n int) {
	const round = 5000
	sink := newSinkAt(b, brokers, topic, exactlyOnce(topic+"-positions"))
	ledger, _ := openLedger(b, sink, onlyLane)
	note := make([]byte, 14*round)
	var all []*notification.Delivery
	for _, ofKey := range deliveries {
		all = append(all, ofKey...)
	}
	return func(n int) {
		for next := 0; n > 0; n -= round {
			var batches sync.WaitGroup
			for from := 0; from < min(n, round); from += benchmarkBatch {
				at := (next + from) % (len(all) - benchmarkBatch)
				batches.Go(func() {
					for _, r := range ledger.DeliverBatch(b.Context(), all[at:at+benchmarkBatch]) {
						if r.Err != nil {
							b.Error(r.Err)
							return
						}
					}
				})
			}
			batches.Wait()
			require.NoError(b, ledger.Commit(b.Context(), note))
			next += round
		}
	}
}

// BenchmarkCompression compares the codecs when the CPU is the limit.
func BenchmarkCompression(b *testing.B) {
	brokers, topic := benchmarkBrokers(b)["fake"](b)
	var contenders []turns.Contender
	for _, codec := range []string{"none", "snappy", "lz4", "zstd", "gzip"} {
		write := throughSink(b, brokers, topic, benchmarkDeliveries(benchmarkKeys), func(c *kafka.Config) { c.Compression = codec })
		contenders = append(contenders, turns.Contender{Name: codec, Do: write})
	}
	turns.Compare(b, 1, contenders...)
}

// inFlight is how many records the client libraries alone have in flight: as many as the sink.
const inFlight = 16 * benchmarkBatch

// throughSink delivers as the engine does: a worker takes a key with all its deliveries, and no
// key is in two batches.
func throughSink(b *testing.B, brokers []string, topic string, deliveries [][]*notification.Delivery, change ...func(*kafka.Config)) func(n int) {
	return through(b, newSinkAt(b, brokers, topic, change...), deliveries)
}

func through(b *testing.B, sink *kafka.Sink, deliveries [][]*notification.Delivery) func(n int) {
	size := max(1, sink.BatchLimits().Size)
	return func(n int) {
		ready := make(chan []*notification.Delivery, len(deliveries))
		for _, ofKey := range deliveries {
			ready <- ofKey
		}
		var left atomic.Int64
		left.Store(int64(n))
		var workers sync.WaitGroup
		for range inFlight / benchmarkBatch {
			workers.Go(func() {
				var batch []*notification.Delivery
				var keys [][]*notification.Delivery
				for left.Load() > 0 {
					batch, keys = batch[:0], keys[:0]
					for len(batch) < size {
						ofKey := <-ready
						keys = append(keys, ofKey)
						batch = append(batch, ofKey[:min(len(ofKey), size-len(batch))]...)
					}
					for _, r := range sink.DeliverBatch(b.Context(), batch) {
						if r.Err != nil {
							b.Error(r.Err)
							return
						}
					}
					left.Add(-int64(len(batch)))
					for _, ofKey := range keys {
						ready <- ofKey
					}
				}
			})
		}
		workers.Wait()
	}
}

func throughFranz(b *testing.B, brokers []string, topic string, deliveries [][]*notification.Delivery) func(n int) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(inFlight), kgo.ProducerBatchMaxBytes(kafka.DefaultMaxMessageBytes), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	require.NoError(b, err)
	b.Cleanup(client.Close)
	return func(n int) {
		var written sync.WaitGroup
		written.Add(n)
		for d := range first(n, deliveries) {
			r := &kgo.Record{Topic: topic, Key: []byte(d.Key), Value: d.Payload, Timestamp: d.OccurredOn}
			for name, text := range benchmarkHeaders(d) {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(text)})
			}
			client.Produce(b.Context(), r, func(_ *kgo.Record, err error) {
				if err != nil {
					b.Error(err)
				}
				written.Done()
			})
		}
		written.Wait()
	}
}

func throughSarama(b *testing.B, brokers []string, topic string, deliveries [][]*notification.Delivery) func(n int) {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewMurmur2Partitioner
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.ChannelBufferSize = inFlight
	producer, err := sarama.NewAsyncProducer(brokers, config)
	require.NoError(b, err)
	b.Cleanup(func() { _ = producer.Close() })
	return func(n int) {
		var answers sync.WaitGroup
		room := make(chan struct{}, inFlight)
		answers.Go(func() {
			for range n {
				select {
				case <-producer.Successes():
				case err := <-producer.Errors():
					b.Error(err)
				}
				<-room
			}
		})
		for d := range first(n, deliveries) {
			m := &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(d.Key), Value: sarama.ByteEncoder(d.Payload), Timestamp: d.OccurredOn}
			for name, text := range benchmarkHeaders(d) {
				m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(name), Value: []byte(text)})
			}
			room <- struct{}{}
			producer.Input() <- m
		}
		answers.Wait()
	}
}

// first returns the first n deliveries, from the beginning again after the last one.
func first(n int, deliveries [][]*notification.Delivery) iter.Seq[*notification.Delivery] {
	return func(yield func(*notification.Delivery) bool) {
		for {
			for _, ofKey := range deliveries {
				for _, d := range ofKey {
					if n--; n < 0 || !yield(d) {
						return
					}
				}
			}
		}
	}
}

// benchmarkHeaders are the headers that the sink writes.
func benchmarkHeaders(d *notification.Delivery) iter.Seq2[string, string] {
	return func(yield func(name, text string) bool) {
		_ = yield(kafka.HeaderID, d.ID) &&
			yield(kafka.HeaderType, d.Type) &&
			yield(kafka.HeaderVersion, strconv.Itoa(d.Version)) &&
			yield(kafka.HeaderOccurredOn, d.OccurredOn.Format(kafka.OccurredOnLayout)) &&
			yield(kafka.HeaderWatermillUUID, d.ID) &&
			yield(notification.MetadataContentType, d.Metadata[notification.MetadataContentType])
	}
}

// benchmarkDeliveries makes 16,000 deliveries, spread evenly over the keys, as in a backlog.
func benchmarkDeliveries(keys int) [][]*notification.Delivery {
	const read = 16_000
	list := make([][]*notification.Delivery, keys)
	for i := range list {
		for n := range max(1, read/keys) {
			d := delivery(fmt.Sprint("order-", i))
			d.Metadata = notification.Metadata{notification.MetadataContentType: "application/json"}
			d.Payload = fmt.Appendf(nil, `{"order":%d,"n":%d,"note":%q}`, i, n, strings.Repeat("some text ", 37))
			list[i] = append(list[i], d)
		}
	}
	return list
}

// slowConn is a connection whose answers take 2 ms each.
type slowConn struct{ net.Conn }

func (c slowConn) Write(b []byte) (int, error) {
	time.Sleep(2 * time.Millisecond)
	return c.Conn.Write(b)
}
