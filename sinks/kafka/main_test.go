package kafka_test

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
	"github.com/waybill-go/waybill/sinks/kafka/watermill"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Sarama's metrics start one ticker for the whole process and never stop it.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		// Sarama's open breaker sleeps for 10 seconds before it closes, even if its producer is
		// closed.
		goleak.IgnoreAnyFunction("github.com/eapache/go-resiliency/breaker.(*Breaker).timer"),
		// Sarama does not close the client of a producer that it could not make, since it got no producer id. A
		// writer that is not closed is still found, since its producer has other goroutines.
		goleak.IgnoreTopFunction("github.com/IBM/sarama.(*client).backgroundMetadataUpdater"),
		goleak.IgnoreTopFunction("github.com/IBM/sarama.(*Broker).responseReceiver"))
}

func newSink(t testing.TB, cluster *kafkatest.Cluster, topic string, change ...func(*kafka.Config)) *kafka.Sink {
	t.Helper()
	return newSinkAt(t, cluster.Brokers, topic, change...)
}

func newSinkAt(t testing.TB, brokers []string, topic string, change ...func(*kafka.Config)) *kafka.Sink {
	t.Helper()
	return newSinkNamed(t, "events", brokers, topic, change...)
}

func newSinkNamed(t testing.TB, name string, brokers []string, topic string, change ...func(*kafka.Config)) *kafka.Sink {
	t.Helper()
	c := kafka.Config{Brokers: brokers, Topic: topic, Timeout: time.Minute} // a request may take a fifth
	for _, f := range change {
		f(&c)
	}
	sink, err := kafka.New(sinks.Instance{Name: name, Logger: slog.New(slog.DiscardHandler)}, c)
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
			OccurredOn: time.Now().UTC().Truncate(time.Microsecond), // a broker deletes old records
			Payload:    []byte(`{"total":12}`),
		},
	}
}

// silence makes the cluster read all requests but answer none.
func silence(cluster *kafkatest.Cluster) {
	cluster.Fake.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.Fake.KeepControl()
		return nil, nil, true
	})
}

// deliverAtLast retries a delivery until it succeeds, for up to a minute. It passes each error to
// failed.
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
		assert.Equal(t, want, sinktest.Class(err), "%v", err)
	}
}

// assertLate checks the error of a delivery that had little time, which may have been over before it began.
func assertLate(t testing.TB, err error) {
	t.Helper()
	if !assert.ObjectsAreEqual(context.DeadlineExceeded, err) {
		assertClass(t, sinks.ClassUnavailable, err)
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

func withFranz(c *kafka.Config) { c.Client = kafka.ClientFranz }

// shortly is for tests in which clients try again, with pauses that are a part of the timeout.
func shortly(c *kafka.Config) { c.Timeout = kafka.DefaultTimeout }

// patient is for tests that count connections: a request that takes longer than a part of the timeout costs one.
func patient(c *kafka.Config) { c.Timeout = 10 * time.Minute }

func withWatermill(c *kafka.Config) { c.Library = watermill.Library{} }

// eachClient runs a test with each value of Config.Client.
func eachClient(t *testing.T, test func(t *testing.T, client func(*kafka.Config))) {
	t.Helper()
	for name, client := range map[string]func(*kafka.Config){"franz-go": withFranz, "watermill": withWatermill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, client)
		})
	}
}

// listening makes a fake cluster whose brokers' connections are replaced as they are accepted.
func listening(replace func(net.Conn) net.Conn) kfake.Opt {
	return kfake.ListenFn(func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		return listener{l, replace}, err
	})
}

type listener struct {
	net.Listener
	replace func(net.Conn) net.Conn
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.replace(conn), nil
}

// counting makes a fake cluster that counts its connections.
func counting(connections *atomic.Int64) kfake.Opt {
	return listening(func(conn net.Conn) net.Conn {
		connections.Add(1)
		return conn
	})
}
