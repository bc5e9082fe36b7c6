package kafka_test

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/notification"
	kafka "github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

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
