package kafka_test

import (
	"fmt"
	"iter"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/notification"
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
	brokers := map[string]func(*testing.B) ([]string, string){"fake": fake(), "2ms": fake(kfake.ListenFn(listenSlowly))}
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
//
// The contenders take turns within one run, so that the ratios are valid on a busy machine. The
// ratios are relative to franz-go alone. The ratios of processor time are more reliable if other
// processes use the machine.
func BenchmarkDeliver(b *testing.B) {
	for name, broker := range benchmarkBrokers(b) {
		for _, keys := range []int{1_000, benchmarkKeys} {
			b.Run(fmt.Sprintf("%s/keys=%d", name, keys), func(b *testing.B) {
				brokers, topic := broker(b)
				deliveries := benchmarkDeliveries(keys)
				compare(b, []contender{
					{"franz-go", 1, throughFranz(b, brokers, topic, deliveries)},
					{"sarama", 1, throughSarama(b, brokers, topic, deliveries)},
					{"sink", 1, throughSink(b, brokers, topic, deliveries)},
					{"watermill", 50, throughSink(b, brokers, topic, deliveries, withWatermill)},
				})
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
	compare(b, []contender{
		{"sink", 1, throughSink(b, brokers, topic, deliveries)},
		{"ledger", 1, throughLedger(b, brokers, topic, deliveries)},
	})
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
	var contenders []contender
	for _, codec := range []string{"none", "snappy", "lz4", "zstd", "gzip"} {
		contenders = append(contenders, contender{codec, 1, throughSink(b, brokers, topic, benchmarkDeliveries(benchmarkKeys), func(c *kafka.Config) { c.Compression = codec })})
	}
	compare(b, contenders)
}

// contender is one of the ways to write records that are compared.
type contender struct {
	name  string
	part  int // writes 1/part of the records, so that a slow contender takes no longer
	write func(n int)
}

// compare lets each contender write b.N records, in turn.
func compare(b *testing.B, contenders []contender) {
	const turns = 9
	elapsed, used := make([][]float64, len(contenders)), make([][]float64, len(contenders))
	n := max(1, b.N/turns)
	b.ResetTimer()
	for turn := range turns {
		for i := range contenders {
			which := (i + turn) % len(contenders)
			begin, usedBefore := time.Now(), processorTime(b)
			part := contenders[which].part
			contenders[which].write(max(1, n/part))
			elapsed[which] = append(elapsed[which], time.Since(begin).Seconds()*float64(part))
			used[which] = append(used[which], (processorTime(b)-usedBefore)*float64(part))
		}
	}
	for i, c := range contenders {
		b.ReportMetric(float64(n)/median(elapsed[i]), c.name+"/s")
		b.ReportMetric(median(used[i])/float64(n)*1e6, c.name+"-us")
		ratios, cost := make([]float64, turns), make([]float64, turns)
		for turn := range turns {
			ratios[turn] = elapsed[0][turn] / elapsed[i][turn]
			cost[turn] = used[0][turn] / used[i][turn]
		}
		b.ReportMetric(median(ratios), c.name+"-ratio")
		b.ReportMetric(median(cost), c.name+"-us-ratio")
	}
	b.ReportMetric(0, "ns/op") // hides the time of all contenders together
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// processorTime is the processor time of this process in seconds, including the fake broker.
func processorTime(b *testing.B) float64 {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Sec+usage.Stime.Sec) + float64(usage.Utime.Usec+usage.Stime.Usec)/1e6
}

// inFlight is how many records the client libraries alone have in flight: as many as the sink.
const inFlight = 16 * benchmarkBatch

// throughSink delivers as the engine does: a worker takes a key with all its deliveries, and no
// key is in two batches.
func throughSink(b *testing.B, brokers []string, topic string, deliveries [][]*notification.Delivery, change ...func(*kafka.Config)) func(n int) {
	sink := newSinkAt(b, brokers, topic, change...)
	_, err := sink.Deliver(b.Context(), delivery("connects"))
	require.NoError(b, err)
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
	write := func(n int) {
		var written sync.WaitGroup
		written.Add(n)
		i := 0
		for i < n {
			for _, ofKey := range deliveries {
				for _, d := range ofKey {
					if i++; i > n {
						break
					}
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
			}
		}
		written.Wait()
	}
	write(1)
	return write
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
	write := func(n int) {
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
		i := 0
		for i < n {
			for _, ofKey := range deliveries {
				for _, d := range ofKey {
					if i++; i > n {
						break
					}
					m := &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(d.Key), Value: sarama.ByteEncoder(d.Payload), Timestamp: d.OccurredOn}
					for name, text := range benchmarkHeaders(d) {
						m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(name), Value: []byte(text)})
					}
					room <- struct{}{}
					producer.Input() <- m
				}
			}
		}
		answers.Wait()
	}
	write(1)
	return write
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

// listenSlowly makes a listener whose answers take 2 ms each.
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
