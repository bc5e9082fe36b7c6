package kafka_test

import (
	"errors"
	"fmt"
	"math"
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
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// Odd records are committed between odd ones that are aborted. Each committed one arrives once its first attempt has
// failed, so each was parked, or it is dead.
func testOddRecordsStopNoPartition(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 2, map[string]string{"message.timestamp.after.max.ms": fmt.Sprint(int64(math.MaxInt64))})
	client := w.transactional(t)
	times := []time.Time{time.UnixMilli(-1), time.UnixMilli(1), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), time.UnixMilli(math.MaxInt64), time.Now()}
	odd := append(oddRecords(), &kgo.Record{}, &kgo.Record{Key: []byte("tombstone")}, &kgo.Record{Key: []byte{}, Value: []byte{}},
		&kgo.Record{Headers: []kgo.RecordHeader{{Key: "kind"}, {Key: "kind", Value: []byte("a")}, {Key: "kind", Value: []byte("b")}}})
	for i, r := range odd {
		r.Timestamp = times[i%len(times)]
		aborted := *r
		aborted.Value = []byte("aborted")
		if i%5 == 0 {
			w.transact(t, client, kgo.TryAbort, &aborted)
		}
		w.transact(t, client, kgo.TryCommit, r)
	}
	var mu sync.Mutex
	calls, arrived := make(map[int64]int), make(map[int64]bool)
	sink := newTaken()
	sink.answer = func(d *notification.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		calls[d.Offset]++
		if string(d.Payload) == "aborted" {
			return errors.New("it was aborted")
		}
		if calls[d.Offset] == 1 || d.Offset%7 == 0 {
			return errors.New("no \x00\xff\u2028")
		}
		arrived[d.Offset] = true
		return nil
	}
	s := w.open(t, func(c *kafka.Config) { c.Type = `headers["kind"]` })
	forward(t, s, sink, func(c *forwarder.Config) {
		c.Routes = route.Routes{"*": route.To("events")}
		events := c.Sinks["events"]
		events.Breaker.Off = true
		c.Sinks["events"] = events
	})
	require.Eventually(t, func() bool {
		sample, err := s.Sample(t.Context(), store.SampleQuery{})
		require.NoError(t, err)
		status := sample.Status(nil)
		for _, c := range status.Cursors {
			if c.Pending > 0 {
				return false
			}
		}
		dead, all := 0, 0
		for _, p := range status.Parked {
			all += int(p.Count)
			if p.State == store.StateDead {
				dead += int(p.Count)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		return all == dead && len(arrived)+dead == len(odd)
	}, patience, 50*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, calls, len(odd), "nothing that was aborted")
	require.NotEmpty(t, arrived)
	require.Less(t, len(arrived), len(odd))
}
