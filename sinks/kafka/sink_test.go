package kafka_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// One ticker for the whole process, made by sarama's metrics and never ended.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		// A sleep of 10 seconds after which sarama's open breaker would close,
		// whether or not its producer is closed by then.
		goleak.IgnoreAnyFunction("github.com/eapache/go-resiliency/breaker.(*Breaker).timer"))
}

// The tests that follow until the next line of dashes run on the fake and, in
// real_test.go, on a real cluster.

func TestARecordCarriesTheNotification(t *testing.T) {
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
	testParallelDeliveriesAllArriveWithTheirReceipts(t, kafkatest.Fake(t))
}

func testParallelDeliveriesAllArriveWithTheirReceipts(t *testing.T, cluster *kafkatest.Cluster) {
	const inFlight, total = 256, 4096
	topic := cluster.CreateTopic(t, 6, nil)
	sink := newSink(t, cluster, topic)

	receipts := make([]string, total) // by what the record says
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

func TestAKeyStaysInOrderThroughARestart(t *testing.T) {
	testAKeyStaysInOrderThroughARestart(t, kafkatest.Fake(t))
}

// The deliveries are made as the engine makes them: one of a key at a time, and
// again until it is delivered.
func testAKeyStaysInOrderThroughARestart(t *testing.T, cluster *kafkatest.Cluster) {
	const keys, before, after = 16, 20, 20
	topic := cluster.CreateTopic(t, 4, nil)
	sink := newSink(t, cluster, topic)

	var (
		warm, finished sync.WaitGroup
		failed         = make(chan struct{}) // the stop was noticed
		failOnce       sync.Once
		restarted      = make(chan struct{})
		counts         [keys]int
	)
	warm.Add(keys)
	for k := range keys {
		finished.Go(func() {
			deliver := func() {
				d := delivery(fmt.Sprint("key-", k))
				d.Payload = fmt.Appendf(nil, "%d", counts[k])
				deliverAtLast(t, sink, d, func(err error) {
					class, _ := sinks.Classify(err)
					assert.Contains(t, []sinks.Class{sinks.ClassUnavailable, sinks.ClassTransient}, class, "%v", err)
					failOnce.Do(func() { close(failed) })
				})
				counts[k]++
			}
			for range before {
				deliver()
			}
			warm.Done()
			for !isClosed(restarted) {
				deliver()
			}
			for range after {
				deliver()
			}
		})
	}
	warm.Wait()
	cluster.Stop(t)
	await(t, failed, "no delivery noticed that the broker is gone")
	cluster.Start(t)
	close(restarted)
	finished.Wait()

	assertNothingLostAndInOrder(t, cluster, topic, counts[:])
}

// assertNothingLostAndInOrder allows a record to be there twice, as long as no newer one of
// its key is between.
func assertNothingLostAndInOrder(t *testing.T, cluster *kafkatest.Cluster, topic string, counts []int) {
	t.Helper()
	total := 0
	for _, n := range counts {
		total += n
	}
	next := make(map[string]int) // by key: what must come, or what came last once more
	for _, r := range cluster.Consume(t, topic, total) {
		var i int
		_, err := fmt.Sscan(string(r.Value), &i)
		require.NoError(t, err)
		key := string(r.Key)
		if i == next[key]-1 {
			continue
		}
		require.Equal(t, next[key], i, "of %s", key)
		next[key]++
	}
	for k, n := range counts {
		assert.Equal(t, n, next[fmt.Sprint("key-", k)], "records of key-%d", k)
	}
}

func TestAnUnknownTopicIsPermanent(t *testing.T) { testAnUnknownTopicIsPermanent(t, kafkatest.Fake(t)) }

func testAnUnknownTopicIsPermanent(t *testing.T, cluster *kafkatest.Cluster) {
	sink := newSink(t, cluster, "nobody-made-this")
	_, err := sink.Deliver(t.Context(), delivery("k"))
	assertClass(t, sinks.ClassPermanent, err)
	assert.ErrorContains(t, err, "nobody-made-this")
	assertClass(t, sinks.ClassPermanent, sink.CheckHealth(t.Context()))
}

func TestARecordThatIsTooLargeIsPermanentAndItsNeighboursAreDelivered(t *testing.T) {
	testARecordThatIsTooLargeIsPermanentAndItsNeighboursAreDelivered(t, kafkatest.Fake(t))
}

func testARecordThatIsTooLargeIsPermanentAndItsNeighboursAreDelivered(t *testing.T, cluster *kafkatest.Cluster) {
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

func TestHealthFollowsTheBroker(t *testing.T) { testHealthFollowsTheBroker(t, kafkatest.Fake(t)) }

func testHealthFollowsTheBroker(t *testing.T, cluster *kafkatest.Cluster) {
	sink := newSink(t, cluster, cluster.CreateTopic(t, 1, nil))
	require.NoError(t, sink.CheckHealth(t.Context()))
	cluster.Stop(t)
	assertClass(t, sinks.ClassUnavailable, sink.CheckHealth(t.Context()))
	cluster.Start(t)
	require.Eventually(t, func() bool { return sink.CheckHealth(t.Context()) == nil }, time.Minute, 100*time.Millisecond)
}

// ---------------------------------------------------------------------------

func TestARecordAboveTheClientsOwnLimitIsPermanent(t *testing.T) {
	cluster := kafkatest.Fake(t)
	sink := newSink(t, cluster, cluster.CreateTopic(t, 1, nil), func(c *kafka.Config) { c.MaxMessageBytes = 2000 })
	d := delivery("k")
	d.Payload = make([]byte, 3000)
	_, err := sink.Deliver(t.Context(), d)
	assertClass(t, sinks.ClassPermanent, err)
}

func TestUnavailableUntilABrokerAppears(t *testing.T) {
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	cluster.Stop(t)
	sink := newSink(t, cluster, topic)
	_, err := sink.Deliver(t.Context(), delivery("k"))
	assertClass(t, sinks.ClassUnavailable, err)

	cluster.Start(t)
	deliverAtLast(t, sink, delivery("k"), func(err error) { assertClass(t, sinks.ClassUnavailable, err) })
	assert.Len(t, cluster.Consume(t, topic, 1), 1)
}

func TestManyDeliveriesConnectOnceAndOnlyOneCarriesTheVerdict(t *testing.T) {
	var connections counter
	cluster := kafkatest.Fake(t, kfake.ListenFn(connections.listen))
	sink := newSink(t, cluster, "nobody-made-this")

	var permanent counter
	var workers sync.WaitGroup
	for range 64 {
		workers.Go(func() {
			_, err := sink.Deliver(t.Context(), delivery("k"))
			if class, _ := sinks.Classify(err); class == sinks.ClassPermanent {
				permanent.add()
				return
			}
			assertClass(t, sinks.ClassUnavailable, err)
			assert.ErrorIs(t, err, kafka.ErrNotConnected)
		})
	}
	workers.Wait()
	assert.Equal(t, 1, permanent.count())
	assert.LessOrEqual(t, connections.count(), 2, "a seed and the broker that it named")
}

func TestAnEmptyPayloadIsNoTombstone(t *testing.T) {
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

func TestKeysGoWhereTheJavaClientPutsThem(t *testing.T) {
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 24, nil)
	sink := newSink(t, cluster, topic)
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

func TestAWatermillSubscriberReadsTheRecord(t *testing.T) {
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
	}, watermill.NopLogger{})
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

func TestARejectedAuthorizationKillsNothing(t *testing.T) {
	cluster := kafkatest.Fake(t)
	sink := newSink(t, cluster, cluster.CreateTopic(t, 1, nil))
	fault := cluster.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	_, err := sink.Deliver(t.Context(), delivery("k"))
	assertClass(t, sinks.ClassUnavailable, err)
	fault.Remove()
	_, err = sink.Deliver(t.Context(), delivery("k"))
	assert.NoError(t, err)
}

func TestMissingReplicasAreTransient(t *testing.T) {
	cluster := kafkatest.Fake(t)
	sink := newSink(t, cluster, cluster.CreateTopic(t, 1, nil))
	cluster.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
	_, err := sink.Deliver(t.Context(), delivery("k"))
	assertClass(t, sinks.ClassTransient, err)
}

func TestACancelledDeliveryPublishesNothing(t *testing.T) {
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	sink := newSink(t, cluster, topic)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := sink.Deliver(ctx, delivery("cancelled"))
	assert.ErrorIs(t, err, context.Canceled)

	_, err = sink.Deliver(t.Context(), delivery("wanted"))
	require.NoError(t, err)
	assert.Equal(t, "wanted", string(cluster.Consume(t, topic, 1)[0].Key))
}

func TestACancelledDeliveryStopsWaitingForAConnection(t *testing.T) {
	silent := listenSilently(t)
	sink := newSinkAt(t, []string{silent}, "orders")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := sink.Deliver(ctx, delivery("k"))
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, time.Since(begin), time.Second, "the timeout is 10 seconds")
}

func TestABrokerThatFallsSilentEndsADeliveryWithinTheTimeout(t *testing.T) {
	for _, idempotent := range []bool{true, false} {
		t.Run(fmt.Sprintf("idempotent=%v", idempotent), func(t *testing.T) {
			const timeout = 2 * time.Second
			cluster := kafkatest.Fake(t)
			sink := newSink(t, cluster, cluster.CreateTopic(t, 1, nil), func(c *kafka.Config) {
				c.Timeout, c.Idempotent = timeout, idempotent
			})
			_, err := sink.Deliver(t.Context(), delivery("k"))
			require.NoError(t, err)
			cluster.Fake.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
				cluster.Fake.KeepControl()
				return nil, nil, true // read, never answered
			})

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var workers sync.WaitGroup
			begin := time.Now()
			for i := range 256 {
				workers.Go(func() {
					_, err := sink.Deliver(t.Context(), delivery(fmt.Sprint(i)))
					assertClass(t, sinks.ClassUnavailable, err)
				})
			}
			workers.Go(func() {
				_, err := sink.Deliver(ctx, delivery("cancelled"))
				assert.ErrorIs(t, err, context.Canceled)
			})
			cancel()
			workers.Wait()
			assert.Less(t, time.Since(begin), timeout*3/2+500*time.Millisecond)
		})
	}
}

func TestABrokerThatDiesEndsAllDeliveriesInFlightWithinTheTimeout(t *testing.T) {
	cluster := kafkatest.Fake(t)
	sink := newSink(t, cluster, cluster.CreateTopic(t, 6, nil))
	_, err := sink.Deliver(t.Context(), delivery("k"))
	require.NoError(t, err)
	// The broker swallows a request, and dies while the deliveries wait.
	arrived := make(chan struct{})
	cluster.Fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(arrived)
		return nil, nil, true
	})
	var workers sync.WaitGroup
	for i := range 256 {
		workers.Go(func() {
			if _, err := sink.Deliver(t.Context(), delivery(fmt.Sprint(i))); err != nil {
				assertClass(t, sinks.ClassUnavailable, err)
			}
		})
	}
	await(t, arrived, "no request came")
	begin := time.Now()
	cluster.Stop(t)
	workers.Wait()
	assert.Less(t, time.Since(begin), 10*time.Second)
	t.Log("all ended after", time.Since(begin))
}

func TestCloseEndsTheSinkAndLaterDeliveriesAreUnavailable(t *testing.T) {
	cluster := kafkatest.Fake(t)
	sink := newSink(t, cluster, cluster.CreateTopic(t, 1, nil))
	_, err := sink.Deliver(t.Context(), delivery("k"))
	require.NoError(t, err)
	require.NoError(t, sink.Close(t.Context()))
	_, err = sink.Deliver(t.Context(), delivery("k"))
	assert.ErrorIs(t, err, kafka.ErrClosed)
	assertClass(t, sinks.ClassUnavailable, err)
	assertClass(t, sinks.ClassUnavailable, sink.CheckHealth(t.Context()))
}

func TestCloseLeavesInTimeAndNothingBehind(t *testing.T) {
	silent := listenSilently(t)
	sink := newSinkAt(t, []string{silent}, "orders", func(c *kafka.Config) { c.Timeout = time.Second })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := sink.Deliver(ctx, delivery("k"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, sink.Close(ctx), context.DeadlineExceeded)
	// The attempt to connect ends by itself; TestMain sees to it that it does.
}

func TestTheSetBuildsTheSink(t *testing.T) {
	var set sinks.Set
	require.NoError(t, kafka.Register(&set))
	require.ErrorIs(t, kafka.Register(&set), sinks.ErrDuplicateKind)
	sink, err := set.Build(kafka.Kind, sinks.Instance{Name: "events"}, func(config any) error {
		c := config.(*kafka.Config)
		c.Brokers, c.Topic = []string{"localhost:9092"}, "orders"
		return nil
	})
	require.NoError(t, err)
	assert.IsType(t, (*kafka.Sink)(nil), sink)
}

func newSink(t testing.TB, cluster *kafkatest.Cluster, topic string, change ...func(*kafka.Config)) *kafka.Sink {
	t.Helper()
	return newSinkAt(t, cluster.Brokers, topic, change...)
}

func newSinkAt(t testing.TB, brokers []string, topic string, change ...func(*kafka.Config)) *kafka.Sink {
	t.Helper()
	var c kafka.Config
	c.SetDefaults()
	c.Brokers, c.Topic = brokers, topic
	for _, f := range change {
		f(&c)
	}
	sink, err := kafka.New(sinks.Instance{Name: "events", Logger: slog.New(slog.DiscardHandler)}, c)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, sink.Close(ctx))
	})
	return sink
}

func delivery(key string) *notification.Delivery {
	return &notification.Delivery{
		Sink:    "events",
		Attempt: 1,
		Envelope: &notification.Envelope{
			ID:         notification.NewID(),
			Type:       "order.placed",
			Version:    2,
			Key:        key,
			OccurredOn: time.Now().UTC().Truncate(time.Microsecond), // a broker deletes what is old
			Payload:    []byte(`{"total":12}`),
		},
	}
}

// deliverAtLast tries until the delivery succeeds, for a minute at most, and
// shows every error to failed.
func deliverAtLast(t *testing.T, sink *kafka.Sink, d *notification.Delivery, failed func(error)) {
	t.Helper()
	assert.Eventually(t, func() bool {
		_, err := sink.Deliver(t.Context(), d)
		if err != nil {
			failed(err)
		}
		return err == nil
	}, time.Minute, 50*time.Millisecond)
}

func assertClass(t testing.TB, want sinks.Class, err error) {
	t.Helper()
	if assert.Error(t, err) {
		class, _ := sinks.Classify(err)
		assert.Equal(t, want, class, "%v", err)
	}
}

func headersOf(r *kgo.Record) map[string]string {
	m := make(map[string]string, len(r.Headers))
	for _, h := range r.Headers {
		m[h.Key] = string(h.Value)
	}
	return m
}

func await(t *testing.T, signal <-chan struct{}, otherwise string) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(time.Minute):
		t.Fatal(otherwise)
	}
}

func isClosed(signal <-chan struct{}) bool {
	select {
	case <-signal:
		return true
	default:
		return false
	}
}

// listenSilently takes connections and never says a word.
func listenSilently(t testing.TB) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// counter counts what happens, such as the connections to its listeners.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func (c *counter) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	return countingListener{l, c}, err
}

type countingListener struct {
	net.Listener
	*counter
}

func (l countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.add()
	}
	return conn, err
}
