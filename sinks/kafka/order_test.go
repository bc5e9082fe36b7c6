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
	t.Parallel()
	testKeysStayInOrderThroughARestart(t, kafkatest.Fake(t))
}

// Sinks with several configurations go through the same restart.
func testKeysStayInOrderThroughARestart(t *testing.T, cluster *kafkatest.Cluster) {
	const keys, before, after = 16, 20, 20
	var (
		warm, finished sync.WaitGroup
		noticed        []chan struct{} // closed when a sink has noticed that the broker is down
		restarted      = make(chan struct{})
		checks         []func()
	)
	for _, c := range []struct {
		size, depth int
		client      func(*kafka.Config)
	}{{1, 1, withFranz}, {5, 1, withFranz}, {5, 8, withFranz}, {1, 1, withWatermill}} {
		topic := cluster.CreateTopic(t, 4, nil)
		failed := make(chan struct{})
		var (
			once   sync.Once
			stopAt [keys]int
			counts []int
		)
		r := &load{
			sink: newSink(t, cluster, topic, c.client), keys: keys, workers: 8, size: c.size, depth: c.depth, delivery: numbered,
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
		checks = append(checks, func() { assertNothingLostAndInOrder(t, cluster, topic, counts, c.depth) })
	}
	warm.Wait()
	cluster.Stop(t)
	for _, failed := range noticed {
		await(t, failed, "no delivery noticed that the broker is down")
	}
	cluster.Start(t)
	close(restarted)
	finished.Wait()
	for _, check := range checks {
		check()
	}
}

// The broker refuses some requests with random errors, and loses some answers after it has stored
// the records.
func TestKeysStayInOrderThroughFailedRequests(t *testing.T) {
	t.Parallel()
	for name, c := range orderings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testKeysStayInOrderThroughFailedRequests(t, c.client, c.depth)
		})
	}
}

// orderings are clients, and how many deliveries of a key they get at a time.
var orderings = map[string]struct {
	client func(*kafka.Config)
	depth  int
}{
	"franz-go, one at a time":       {withFranz, 1},
	"franz-go, several at a time":   {withFranz, 7},
	"franz-go, without idempotence": {func(c *kafka.Config) { c.Acks = kafka.AcksLeader }, 7},
	"watermill":                     {withWatermill, 1},
}

func testKeysStayInOrderThroughFailedRequests(t *testing.T, client func(*kafka.Config), depth int) {
	const keys, each = 40, 60
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	var lose, answers atomic.Int64
	cluster := kafkatest.Fake(t, listening(func(conn net.Conn) net.Conn { return lossyConn{conn, &lose, &answers} }))
	topic := cluster.CreateTopic(t, 4, nil)
	sink := newSink(t, cluster, topic, client)

	dice := rand.New(rand.NewPCG(seed, 0)) // only the cluster's goroutine uses it
	for _, fault := range []*kerr.Error{
		kerr.NotEnoughReplicas, kerr.NotLeaderForPartition, kerr.RequestTimedOut, // the clients retry these
		kerr.MessageTooLarge, kerr.InvalidRecord, kerr.UnknownServerError, kerr.TopicAuthorizationFailed, // the clients do not retry these
	} {
		cluster.Fake.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Err: fault, Count: -1,
			When: func(kmsg.Request) bool { return dice.IntN(40) == 0 },
		})
	}
	lose.Store(20)
	var failures atomic.Int64
	r := &load{
		sink: sink, keys: keys, workers: 4, size: 20, depth: depth,
		delivery: numbered,
		goesOn:   func(_, count int) bool { return count < each*depth || lose.Load() > 0 },
		failed:   func(error) { failures.Add(1) },
	}
	assertNothingLostAndInOrder(t, cluster, topic, r.run(t), depth)
	assert.NotZero(t, failures.Load(), "no delivery failed")
}

// A broker stores records but stops answering, until the deliveries time out and are retried. The
// client must not write records of timed-out deliveries after that.
func TestKeysStayInOrderThroughTimeouts(t *testing.T) {
	t.Parallel()
	for name, c := range orderings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testKeysStayInOrderThroughTimeouts(t, c.client, c.depth)
		})
	}
}

func testKeysStayInOrderThroughTimeouts(t *testing.T, client func(*kafka.Config), depth int) {
	const keys, each = 40, 60
	var mute, answers atomic.Int64
	cluster := kafkatest.Fake(t, listening(func(conn net.Conn) net.Conn {
		return &mutingConn{Conn: conn, mute: &mute, answers: &answers}
	}))
	topic := cluster.CreateTopic(t, 4, nil)
	sink := newSink(t, cluster, topic, client, shortly) // a request times out after a second, later than the deliveries
	mute.Store(4)
	var failures atomic.Int64
	r := &load{
		sink: sink, keys: keys, workers: 4, size: 20, depth: depth, timeout: 100 * time.Millisecond,
		delivery: numbered,
		goesOn:   func(_, count int) bool { return count < each*depth },
		failed: func(err error) {
			assertLate(t, err)
			failures.Add(1)
		},
	}
	assertNothingLostAndInOrder(t, cluster, topic, r.run(t), depth)
	assert.NotZero(t, failures.Load(), "the silence makes some deliveries fail")
	assert.LessOrEqual(t, mute.Load(), int64(0))
}

// load delivers a backlog as the engine does: a worker takes free keys with some deliveries of each,
// and after a failure repeats the failed delivery and the later ones.
type load struct {
	sink                *kafka.Sink
	keys, workers, size int           // size is the number of keys in a batch
	depth               int           // deliveries of each key in a batch; with size and depth 1, it calls Deliver
	timeout             time.Duration // of a delivery or batch; 0 for none

	delivery func(key, count int) *notification.Delivery // makes the delivery after count of the key
	goesOn   func(key, count int) bool                   // reports whether there are more than count
	failed   func(error)

	ready  chan int // keys whose next delivery may begin
	counts []int    // made deliveries, by key
	left   atomic.Int64
}

// run returns how many deliveries of each key were made.
func (r *load) run(t testing.TB) []int {
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

// take returns a batch of the key and of other keys that are ready.
func (r *load) take(key int) []int {
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

func (r *load) deliver(t testing.TB, batch []int) {
	var deliveries []*notification.Delivery
	for _, key := range batch {
		for i := range r.depth {
			deliveries = append(deliveries, r.delivery(key, r.counts[key]+i))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(r.timeout, time.Hour))
	defer cancel()
	var results []sinks.Result
	if len(deliveries) == 1 {
		receipt, err := r.sink.Deliver(ctx, deliveries[0])
		results = []sinks.Result{{Receipt: receipt, Err: err}}
	} else {
		results = r.sink.DeliverBatch(ctx, deliveries)
	}
	for i, key := range batch {
		if r.settle(t, key, results[i*r.depth:(i+1)*r.depth]) {
			r.ready <- key
		} else if r.left.Add(-1) == 0 {
			close(r.ready)
		}
	}
}

// settle counts the results of a key, and reports whether it has more to deliver.
func (r *load) settle(t testing.TB, key int, results []sinks.Result) (more bool) {
	more = true
	for i, result := range results {
		if result.Err != nil {
			r.failed(result.Err)
			for _, later := range results[i:] {
				assert.Error(t, later.Err, "a delivery was made after an earlier one of the key failed")
			}
			return true // the broker may have stored it and its answer may be lost, so it is repeated
		}
		r.counts[key]++
		more = more && r.goesOn(key, r.counts[key])
	}
	return more
}

// numbered makes the delivery after count of the key.
func numbered(key, count int) *notification.Delivery {
	d := delivery(fmt.Sprint("key-", key))
	d.Payload = strconv.AppendInt(nil, int64(count), 10)
	return d
}

// assertNothingLostAndInOrder checks that the records of each key have no gap, and end with the
// newest. The last records of a key, up to a batch, may be repeated.
func assertNothingLostAndInOrder(t *testing.T, cluster *kafkatest.Cluster, topic string, counts []int, depth int) {
	t.Helper()
	total := 0
	for _, n := range counts {
		total += n
	}
	last, first := make(map[string]int), make(map[string]int) // by key: the highest and the lowest number that may come next
	for _, r := range cluster.ConsumeAll(t, topic, total) {
		var i int
		_, err := fmt.Sscan(string(r.Value), &i)
		require.NoError(t, err)
		key := string(r.Key)
		require.LessOrEqual(t, i, last[key], "of %s", key)
		require.GreaterOrEqual(t, i, first[key]-depth, "of %s", key)
		last[key] = i + 1
		first[key] = max(first[key], i+1)
	}
	for k, n := range counts {
		assert.Equal(t, n, last[fmt.Sprint("key-", k)], "records of key-%d", k)
	}
}

// lossyConn is a broker's connection that loses answers: it breaks after the broker has done what was
// requested. All connections share the numbers.
type lossyConn struct {
	net.Conn
	lose, answers *atomic.Int64 // lose is how many more answers to lose, one of ten
}

func (c lossyConn) Write(b []byte) (int, error) {
	if c.lose.Load() > 0 && c.answers.Add(1)%10 == 0 {
		c.lose.Add(-1)
		_ = c.Close()
		return 0, errors.New("lost")
	}
	return c.Conn.Write(b)
}

// mutingConn is a broker's connection that stops answering after one of twenty answers, a limited
// number of times. All connections share the numbers.
type mutingConn struct {
	net.Conn
	mute, answers *atomic.Int64
	silent        bool // the broker writes one answer at a time
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
