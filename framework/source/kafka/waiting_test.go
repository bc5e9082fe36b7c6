package kafka_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// lagOf returns how late the sink events is.
func lagOf(t *testing.T, s *sqlite.Store) time.Duration {
	t.Helper()
	sample, err := s.Sample(t.Context(), store.SampleQuery{})
	require.NoError(t, err)
	i := slices.IndexFunc(sample.Sinks, func(s store.SinkSample) bool { return s.Sink == "events" })
	return sample.Sinks[i].Lag
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
	first := fetches.Load()
	require.Positive(t, first)
	require.Greater(t, lagOf(t, s), time.Hour)
	require.Equal(t, first, fetches.Load())
}
