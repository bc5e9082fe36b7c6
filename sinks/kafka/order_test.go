package kafka_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
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

func TestKeysStayInOrderThroughARestart(t *testing.T) {
	testKeysStayInOrderThroughARestart(t, kafkatest.Fake(t))
}

// Deliveries one by one and in batches live through the same restart.
func testKeysStayInOrderThroughARestart(t *testing.T, cluster *kafkatest.Cluster) {
	const keys, before, after = 16, 20, 20
	var (
		warm, finished sync.WaitGroup
		noticed        []chan struct{} // that the broker is gone
		restarted      = make(chan struct{})
		checks         []func()
	)
	for _, size := range []int{1, 5} {
		topic := cluster.CreateTopic(t, 4, nil)
		failed := make(chan struct{})
		var (
			once   sync.Once
			stopAt [keys]int
			counts []int
		)
		r := &rush{
			sink: newSink(t, cluster, topic), keys: keys, workers: 8, size: size, delivery: numbered,
			goesOn: func(key, count int) bool {
				if count == before {
					warm.Done()
				}
				if !isClosed(restarted) {
					stopAt[key] = count + after
				}
				return count < max(before, stopAt[key])
			},
			failed: func(err error) {
				class, _ := sinks.Classify(err)
				assert.Contains(t, []sinks.Class{sinks.ClassUnavailable, sinks.ClassTransient}, class, "%v", err)
				once.Do(func() { close(failed) })
			},
		}
		warm.Add(keys)
		finished.Go(func() { counts = r.run(t) })
		noticed = append(noticed, failed)
		checks = append(checks, func() { assertNothingLostAndInOrder(t, cluster, topic, counts) })
	}
	warm.Wait()
	cluster.Stop(t)
	for _, failed := range noticed {
		await(t, failed, "no delivery noticed that the broker is gone")
	}
	cluster.Start(t)
	close(restarted)
	finished.Wait()
	for _, check := range checks {
		check()
	}
}

// Whatever the broker has against a request, and however often its answer is
// lost after it has stored the records.
func TestKeysStayInOrderThroughFailedRequests(t *testing.T) {
	const keys, each = 40, 60
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	var answers lossy
	cluster := kafkatest.Fake(t, kfake.ListenFn(answers.listen))
	topic := cluster.CreateTopic(t, 4, nil)
	sink := newSink(t, cluster, topic)

	dice := rand.New(rand.NewPCG(seed, 0)) // used by the cluster's goroutine alone
	for _, fault := range []*kerr.Error{
		kerr.NotEnoughReplicas, kerr.NotLeaderForPartition, kerr.RequestTimedOut, // sarama tries them again
		kerr.MessageTooLarge, kerr.InvalidRecord, kerr.UnknownServerError, kerr.TopicAuthorizationFailed, // it does not
	} {
		cluster.Fake.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Err: fault, Count: -1,
			When: func(kmsg.Request) bool { return dice.IntN(40) == 0 },
		})
	}
	answers.lose.Store(20)
	var failures atomic.Int64
	r := &rush{
		sink: sink, keys: keys, workers: 4, size: 20,
		delivery: numbered,
		goesOn:   func(_, count int) bool { return count < each },
		failed:   func(error) { failures.Add(1) },
	}
	assertNothingLostAndInOrder(t, cluster, topic, r.run(t))
	assert.NotZero(t, failures.Load(), "the faults hurt nobody")
	assert.LessOrEqual(t, answers.lose.Load(), int64(0), "answers were lost")
}

// Where a broker falls silent after it has stored the records, until the deliveries are
// given up and made again. What the client still held must not come behind that.
func TestKeysStayInOrderThroughDeliveriesOutOfTime(t *testing.T) {
	const keys, each = 40, 60
	var answers muting
	cluster := kafkatest.Fake(t, kfake.ListenFn(answers.listen))
	topic := cluster.CreateTopic(t, 4, nil)
	sink := newSink(t, cluster, topic) // gives a request up after a second, later than the deliveries
	answers.mute.Store(4)
	var failures atomic.Int64
	r := &rush{
		sink: sink, keys: keys, workers: 4, size: 20, timeout: 100 * time.Millisecond,
		delivery: numbered,
		goesOn:   func(_, count int) bool { return count < each },
		failed: func(err error) {
			assertClass(t, sinks.ClassUnavailable, err)
			failures.Add(1)
		},
	}
	assertNothingLostAndInOrder(t, cluster, topic, r.run(t))
	assert.NotZero(t, failures.Load(), "the silence hurts some")
	assert.LessOrEqual(t, answers.mute.Load(), int64(0))
}

// rush delivers as the engine does with a backlog: a worker takes what may go,
// one delivery of each key, and one that failed goes again.
type rush struct {
	sink                *kafka.Sink
	keys, workers, size int           // size 1: with Deliver
	timeout             time.Duration // of a delivery or batch, 0 for none

	delivery func(key, count int) *notification.Delivery // that comes after so many of the key
	goesOn   func(key, count int) bool                   // whether one more comes
	failed   func(error)

	ready  chan int // keys whose next delivery may go
	counts []int    // delivered, by key
	left   atomic.Int64
}

// run returns how many of each key were delivered.
func (r *rush) run(t testing.TB) []int {
	r.ready, r.counts = make(chan int, r.keys), make([]int, r.keys)
	r.left.Store(int64(r.keys))
	for key := range r.keys {
		r.ready <- key
	}
	var workers sync.WaitGroup
	for range r.workers {
		workers.Go(func() {
			for key := range r.ready {
				r.deliver(t, r.take(key))
			}
		})
	}
	workers.Wait()
	return r.counts
}

// take adds what may go as well, up to a batch.
func (r *rush) take(key int) []int {
	batch := []int{key}
	for len(batch) < r.size {
		select {
		case key, open := <-r.ready:
			if !open {
				return batch
			}
			batch = append(batch, key)
		default:
			return batch
		}
	}
	return batch
}

func (r *rush) deliver(t testing.TB, batch []int) {
	deliveries := make([]*notification.Delivery, len(batch))
	for i, key := range batch {
		deliveries[i] = r.delivery(key, r.counts[key])
	}
	ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(r.timeout, time.Hour))
	defer cancel()
	var results []sinks.Result
	if r.size == 1 {
		receipt, err := r.sink.Deliver(ctx, deliveries[0])
		results = []sinks.Result{{Receipt: receipt, Err: err}}
	} else {
		results = r.sink.DeliverBatch(ctx, deliveries)
	}
	for i, key := range batch {
		if err := results[i].Err; err != nil {
			r.failed(err)
		} else if r.counts[key]++; !r.goesOn(key, r.counts[key]) {
			if r.left.Add(-1) == 0 {
				close(r.ready)
			}
			continue
		}
		r.ready <- key
	}
}

// numbered is the delivery of a key that comes after so many.
func numbered(key, count int) *notification.Delivery {
	d := delivery(fmt.Sprint("key-", key))
	d.Payload = strconv.AppendInt(nil, int64(count), 10)
	return d
}

// assertNothingLostAndInOrder allows a record to be there twice, as long as no
// newer one of its key is between.
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

// lossy loses answers of the brokers behind its listeners: what they did is done,
// and the connection breaks instead.
type lossy struct {
	lose    atomic.Int64 // how many are still to be lost, one of ten
	answers atomic.Int64
}

func (l *lossy) listen(network, address string) (net.Listener, error) {
	listener, err := net.Listen(network, address)
	return lossyListener{listener, l}, err
}

type lossyListener struct {
	net.Listener
	*lossy
}

func (l lossyListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return lossyConn{conn, l.lossy}, err
}

type lossyConn struct {
	net.Conn
	*lossy
}

func (c lossyConn) Write(b []byte) (int, error) {
	if c.lose.Load() > 0 && c.answers.Add(1)%10 == 0 {
		c.lose.Add(-1)
		_ = c.Close()
		return 0, errors.New("lost")
	}
	return c.Conn.Write(b)
}

// muting has brokers behind its listeners fall silent on a connection, one of twenty
// answers, so many times.
type muting struct {
	mute    atomic.Int64
	answers atomic.Int64
}

func (m *muting) listen(network, address string) (net.Listener, error) {
	listener, err := net.Listen(network, address)
	return mutingListener{listener, m}, err
}

type mutingListener struct {
	net.Listener
	*muting
}

func (l mutingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &mutingConn{Conn: conn, muting: l.muting}, err
}

type mutingConn struct {
	net.Conn
	*muting
	silent bool // the broker writes one answer at a time
}

func (c *mutingConn) Write(b []byte) (int, error) {
	if !c.silent && c.mute.Load() > 0 && c.answers.Add(1)%20 == 0 {
		c.mute.Add(-1)
		c.silent = true
	}
	if c.silent {
		return len(b), nil
	}
	return c.Conn.Write(b)
}
