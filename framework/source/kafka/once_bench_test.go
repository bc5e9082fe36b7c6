//go:build kafka

package kafka_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// BenchmarkExactlyOnce compares exactly_once with the idempotent sink, from an outbox in PostgreSQL to a
// real Kafka. It measures in turn the throughput of a backlog of b.N rows of 400 bytes and 10,000 keys,
// and the time from the commit of a single notification until a reader of committed records sees it.
func BenchmarkExactlyOnce(b *testing.B) {
	cluster := kafkatest.Real(b)
	topic := cluster.CreateTopic(b, 6, nil)
	db, err := postgres.OpenDB(postgrestest.DSN(b))
	require.NoError(b, err)
	defer db.Close()
	_, err = postgres.Migrate(b.Context(), db, postgres.Config{})
	require.NoError(b, err)
	log, err := postgres.Open(b.Context(), db, postgres.Config{})
	require.NoError(b, err)
	publish := func(id string, n int) {
		_, err := db.ExecContext(b.Context(), `INSERT INTO outbox (id, type, key, payload)
			SELECT $1 || i, 'order.placed', 'key' || i % 10000, json_build_object('text', repeat('x', 380))::jsonb FROM generate_series(1, $2) i`, id, n)
		require.NoError(b, err)
	}
	publish("backlog", b.N)
	kinds := []string{"idempotent", "exactly-once"}
	run := func(kind, name string) (f *forwarder.Forwarder, stop func()) {
		s, err := kafka.New(sinks.Instance{Name: name}, kafka.Config{Brokers: cluster.Brokers, Topic: topic, ExactlyOnce: kind == "exactly-once"})
		require.NoError(b, err)
		f, err = forwarder.New(forwarder.Config{Store: log, Routes: route.Routes{"*": route.To(name)}, Logger: slog.New(slog.DiscardHandler),
			Sinks: map[string]forwarder.Sink{name: {Sink: s, Start: store.StartOldest}}})
		require.NoError(b, err)
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		return f, func() { cancel(); require.NoError(b, <-ended) }
	}
	const turns = 5
	rates, waits := make(map[string][]float64), make(map[string][]float64)
	b.ResetTimer()
	for turn := range turns {
		for i := range kinds {
			kind := kinds[(i+turn)%len(kinds)]
			name := fmt.Sprintf("%s%d", kind, turn)
			f, stop := run(kind, name)
			for f.Stats()[0].Delivered == 0 {
				time.Sleep(time.Millisecond)
			}
			began, from := time.Now(), f.Stats()[0].Delivered
			for f.Stats()[0].Delivered < int64(b.N) {
				time.Sleep(time.Millisecond)
			}
			rates[kind] = append(rates[kind], float64(int64(b.N)-from)/time.Since(began).Seconds())
			stop()
		}
	}
	b.StopTimer()
	for _, kind := range kinds {
		_, stop := run(kind, kind+"0")
		for i := range 40 {
			waits[kind] = append(waits[kind], seen(b, cluster, topic, fmt.Sprintf("%s single %d ", kind, i), publish))
		}
		stop()
		b.ReportMetric(median(rates[kind]), kind+"/s")
		b.ReportMetric(median(waits[kind]), kind+"-ms")
	}
	ratios := make([]float64, turns)
	for i := range ratios {
		ratios[i] = rates["exactly-once"][i] / rates["idempotent"][i]
	}
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(0, "ns/op")
}

func median(list []float64) float64 { return slices.Sorted(slices.Values(list))[len(list)/2] }

// seen returns how many milliseconds after publishing a reader sees a notification.
func seen(b *testing.B, cluster *kafkatest.Cluster, topic, id string, publish func(id string, n int)) float64 {
	b.Helper()
	reader, err := kgo.NewClient(kgo.SeedBrokers(cluster.Brokers...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), kgo.FetchMaxWait(5*time.Second))
	require.NoError(b, err)
	defer reader.Close()
	var at atomic.Int64
	found := make(chan struct{})
	go func() {
		defer close(found)
		for {
			fetches := reader.PollFetches(b.Context())
			if fetches.Err() != nil {
				return
			}
			for _, r := range fetches.Records() {
				for _, h := range r.Headers {
					if h.Key == "id" && string(h.Value) == id+"1" && at.Load() > 0 {
						return
					}
				}
			}
		}
	}()
	time.Sleep(300 * time.Millisecond) // the reader is at the end by now
	began := time.Now()
	at.Store(1)
	publish(id, 1)
	<-found
	return float64(time.Since(began).Microseconds()) / 1000
}
