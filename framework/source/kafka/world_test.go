package kafka_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	kafka "github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks"
	kafkasink "github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// world is a topic with the tables of a forwarder that reads it.
type world struct {
	cluster *kafkatest.Cluster
	topic   string
	file    string
	client  *kgo.Client
	log     *slog.Logger
}

func newWorld(t *testing.T, cluster *kafkatest.Cluster, partitions int32, configs map[string]string) *world {
	w := &world{cluster: cluster, topic: cluster.CreateTopic(t, partitions, configs), file: filepath.Join(t.TempDir(), "outbox.db"), log: slog.New(slog.DiscardHandler)}
	var err error
	w.client, err = kgo.NewClient(kgo.SeedBrokers(cluster.Brokers...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	require.NoError(t, err)
	t.Cleanup(w.client.Close)
	return w
}

// write writes records, and returns after they are stored.
func (w *world) write(t *testing.T, records ...*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, r := range records {
		if r.Topic == "" {
			r.Topic = w.topic
		}
	}
	require.NoError(t, w.client.ProduceSync(ctx, records...).FirstErr())
}

// orders returns n records with the kafka sink's headers and several keys. The payload is the number.
func orders(first, n, keys int) (records []*kgo.Record) {
	for i := first; i < first+n; i++ {
		records = append(records, &kgo.Record{
			Key: fmt.Appendf(nil, "k%d", i%keys), Value: fmt.Appendf(nil, "%d", i),
			Headers: []kgo.RecordHeader{
				{Key: kafkasink.HeaderID, Value: fmt.Appendf(nil, "order-%d", i)}, {Key: kafkasink.HeaderType, Value: []byte("order.placed")},
				{Key: kafkasink.HeaderVersion, Value: []byte("1")}, {Key: kafkasink.HeaderOccurredOn, Value: []byte("2026-03-01T10:00:00Z")},
			},
		})
	}
	return records
}

func (w *world) config(change ...func(*kafka.Config)) kafka.Config {
	c := kafka.Config{Brokers: w.cluster.Brokers, Topics: []string{w.topic}, Logger: w.log}
	c.SetTimeout(30 * time.Second)
	for _, f := range change {
		f(&c)
	}
	return c
}

// open opens the store, with the topic as its source.
func (w *world) open(t *testing.T, change ...func(*kafka.Config)) *sqlite.Store {
	t.Helper()
	source, err := kafka.New(w.config(change...))
	require.NoError(t, err)
	t.Cleanup(source.Close)
	db, err := sqlite.OpenDB(w.file)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = sqlite.Migrate(t.Context(), db, sqlite.Config{})
	require.NoError(t, err)
	s, err := sqlite.Open(t.Context(), db, sqlite.Config{Source: source})
	require.NoError(t, err)
	return s
}

// taken is a sink that records its deliveries. answer may fail a delivery.
type taken struct {
	answer func(d *notification.Delivery) error

	mu   sync.Mutex
	all  []notification.Delivery
	news chan struct{}
}

func newTaken() *taken { return &taken{news: make(chan struct{}, 1)} }

func (s *taken) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answer != nil {
		if err := s.answer(d); err != nil {
			return "", err
		}
	}
	envelope := *d.Envelope
	s.all = append(s.all, notification.Delivery{Envelope: &envelope, Sink: d.Sink})
	select {
	case s.news <- struct{}{}:
	default:
	}
	return "", nil
}

// await returns the arrivals after n different ids have arrived.
func (s *taken) await(t *testing.T, n int) []notification.Delivery {
	t.Helper()
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		ids := make(map[string]bool)
		for _, d := range s.all {
			ids[d.ID] = true
		}
		all := slices.Clone(s.all)
		s.mu.Unlock()
		if len(ids) >= n {
			return all
		}
		select {
		case <-s.news:
		case <-deadline:
			require.FailNow(t, "not all came", "%d of %d", len(ids), n)
		}
	}
}

// count returns how many different ids have arrived.
func (s *taken) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make(map[string]bool)
	for _, d := range s.all {
		ids[d.ID] = true
	}
	return len(ids)
}

// inOrder fails unless the numbers of each key first arrive in ascending order.
func inOrder(t *testing.T, all []notification.Delivery) {
	t.Helper()
	last, seen := make(map[string]int), make(map[string]bool)
	for _, d := range all {
		if seen[d.ID] {
			continue
		}
		seen[d.ID] = true
		var n int
		require.NoError(t, json.Unmarshal(d.Payload, &n))
		if before, known := last[d.Key]; known {
			require.Greater(t, n, before, "key %s", d.Key)
		}
		last[d.Key] = n
	}
}

// forward runs a forwarder until stop is called, or the test ends.
func forward(t *testing.T, s forwarder.Store, sink sinks.Sink, change ...func(*forwarder.Config)) (stop func()) {
	t.Helper()
	c := forwarder.Config{
		Store: s, Routes: route.Routes{"order.*": route.To("events")}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Lease: 2 * time.Second,
		Sinks: map[string]forwarder.Sink{"events": {Sink: sink, Retry: forwarder.Retry{Initial: 10 * time.Millisecond, Max: 50 * time.Millisecond, MaxAttempts: 3}}},
	}
	for _, f := range change {
		f(&c)
	}
	f, err := forwarder.New(c)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}

// awaitParked returns the parked deliveries when there are n.
func awaitParked(t *testing.T, s *sqlite.Store, n int) (parked []store.ParkedDelivery) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		parked, err = s.FindParked(t.Context(), store.ParkedFilter{}, store.ParkedPlace{}, 100)
		require.NoError(t, err)
		return len(parked) == n
	}, patience, 20*time.Millisecond)
	return parked
}

// writeAgain writes records, and tries again while the brokers are away.
func (w *world) writeAgain(t *testing.T, records ...*kgo.Record) {
	t.Helper()
	for _, r := range records {
		r.Topic = w.topic
	}
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		for _, r := range records {
			r.Context = nil // the client put that of the attempt before into it, which has ended
		}
		return w.client.ProduceSync(ctx, records...).FirstErr() == nil
	}, patience, 100*time.Millisecond)
}
