package kafka_test

import (
	"bytes"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-go/waybill/framework/notification"
	kafka "github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// An idle forwarder requests little more than the ends of the partitions.
func TestAnIdleForwarderSendsFewRequests(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	w := newWorld(t, cluster, 3, nil)
	w.write(t, orders(0, 10, 10)...)
	sink := newTaken()
	forward(t, w.open(t), sink)
	sink.await(t, 10)
	var looks, metadata, commits atomic.Int64
	cluster.Fake.Control(func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.Fake.KeepControl()
		switch request.(type) {
		case *kmsg.ListOffsetsRequest:
			looks.Add(1)
		case *kmsg.MetadataRequest:
			metadata.Add(1)
		case *kmsg.OffsetCommitRequest:
			commits.Add(1)
		}
		return nil, nil, false
	})
	const seconds = 5
	idle := func() bool {
		looks.Store(0)
		metadata.Store(0)
		commits.Store(0)
		time.Sleep(seconds * time.Second)
		return commits.Load() == 0
	}
	for deadline := time.Now().Add(patience); !idle(); { // until the consumer groups have caught up
		require.True(t, time.Now().Before(deadline), "positions that did not move are not written")
	}
	require.LessOrEqual(t, looks.Load(), int64(25*seconds))
	require.LessOrEqual(t, metadata.Load(), int64(2*seconds))
}

// Each answer has more than a page can hold, as with huge records or slow sinks.
func TestAllReadersTogetherKeepALimitedPartOfTheAnswers(t *testing.T) {
	t.Parallel()
	const partitions, each, most = 8, 20, 500 << 10
	w := newWorld(t, kafkatest.Fake(t), partitions, nil)
	var err error
	w.client, err = kgo.NewClient(kgo.SeedBrokers(w.cluster.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(w.client.Close)
	var records []*kgo.Record
	for i := range partitions * each {
		records = append(records, &kgo.Record{Partition: int32(i % partitions), Value: bytes.Repeat([]byte{byte(i)}, 16<<10)})
	}
	w.write(t, records...)
	source, err := kafka.New(w.config(func(c *kafka.Config) { c.Type = `"t"` }))
	require.NoError(t, err)
	t.Cleanup(source.Close)
	source.KeepAtMost(most)
	beginnings, err := source.Begin(t.Context(), nil, store.StartOldest)
	require.NoError(t, err)
	readers := make([]store.Reader, partitions)
	for i := range readers {
		readers[i], err = source.NewReader(beginnings[i].Position, store.Filter{Slots: store.SlotRange{First: i, Last: i}, Types: notification.AllTypes})
		require.NoError(t, err)
	}
	target, err := source.Probe(t.Context())
	require.NoError(t, err)
	var highest int64
	for i := range each {
		for partition, r := range readers {
			page, err := r.Next(t.Context(), target, 1)
			require.NoError(t, err)
			require.Len(t, page.Envelopes, 1)
			require.Equal(t, byte(i*partitions+partition), page.Envelopes[0].Payload[0])
			highest = max(highest, source.Kept())
		}
	}
	require.LessOrEqual(t, highest, int64(most))
	require.Positive(t, highest)
	require.Zero(t, source.Kept(), "all is read")

	func() {
		again, err := source.NewReader(beginnings[0].Position, store.Filter{Types: notification.AllTypes})
		require.NoError(t, err)
		_, err = again.Next(t.Context(), target, 1)
		require.NoError(t, err)
		require.Positive(t, source.Kept())
	}()
	require.Eventually(t, func() bool { runtime.GC(); return source.Kept() == 0 }, patience, time.Millisecond, "an unused reader keeps nothing")
}

// lagOf returns how late the sink events is, once the cluster has answered within store.CountTime.
func lagOf(t *testing.T, s *sqlite.Store) (lag time.Duration) {
	t.Helper()
	for begun := time.Now(); lag == 0; {
		require.Less(t, time.Since(begun), patience, "the lag is not known")
		sample, err := s.Sample(t.Context(), store.SampleQuery{})
		require.NoError(t, err)
		i := slices.IndexFunc(sample.Sinks, func(s store.SinkSample) bool { return s.Sink == "events" })
		lag = sample.Sinks[i].Lag
	}
	return lag
}

// The alert on retention must continue once the records are gone.
func TestALaneWhoseRecordsAreGoneIsLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t), 1, map[string]string{"retention.ms": "7200000"})
	records := orders(0, 10, 1)
	for _, r := range records {
		r.Timestamp = time.Now().Add(-100 * time.Minute)
	}
	w.write(t, records...)
	w.begun(t)
	s := w.open(t)
	require.Greater(t, lagOf(t, s), time.Hour)
	w.lose(t, 4)
	require.Greater(t, lagOf(t, s), time.Hour)
}

// Aborted transactions and control records are before the oldest record.
func testALaneBehindAnAbortedTransactionIsLate(t *testing.T, cluster *kafkatest.Cluster) {
	if cluster.Fake != nil {
		t.Skip("the fake cluster names no aborted transaction in an answer of one batch")
	}
	w := newWorld(t, cluster, 1, nil)
	w.transact(t, w.transactional(t), kgo.TryAbort, orders(900, 1, 1)...)
	r := orders(0, 1, 1)[0]
	r.Timestamp = time.Now().Add(-100 * time.Minute)
	w.write(t, r)
	w.begun(t)
	require.Greater(t, lagOf(t, w.open(t)), time.Hour)
}

// Metrics and the dashboard sample any number of late lanes every few seconds.
func TestAStoppedLaneCostsOneFetch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t), 3, nil)
	records := orders(0, 30, 30)
	for _, r := range records {
		r.Timestamp = time.Now().Add(-100 * time.Minute)
	}
	w.write(t, records...)
	w.begun(t)
	s := w.open(t)
	var fetches atomic.Int64
	w.cluster.Fake.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.Fake.KeepControl()
		fetches.Add(1)
		return nil, nil, false
	})
	require.Greater(t, lagOf(t, s), time.Hour)
	require.Positive(t, fetches.Load())
	require.Eventually(t, func() bool { // a lane whose answer came too late is fetched again
		before := fetches.Load()
		require.Greater(t, lagOf(t, s), time.Hour)
		return fetches.Load() == before
	}, patience, time.Millisecond)
}
