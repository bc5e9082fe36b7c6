package kafka_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// A client counts the timestamp of a record in nanoseconds, which overflow after 2262.
func TestATimeFromTheYear1To9999ArrivesOrIsInvalid(t *testing.T) {
	t.Parallel()
	first, last := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
	times := []time.Time{
		first, last, time.Unix(0, 0).UTC(), time.Unix(0, -1_000).UTC(), time.Unix(-1, 0).UTC(),
		time.Date(1677, 9, 21, 0, 0, 0, 0, time.UTC), time.Date(1677, 9, 22, 0, 0, 0, 0, time.UTC),
		time.Date(2262, 4, 11, 0, 0, 0, 0, time.UTC), time.Date(2262, 4, 12, 0, 0, 0, 0, time.UTC),
	}
	r := rand.New(rand.NewPCG(7, 7))
	for range 200 {
		times = append(times, time.UnixMicro(first.UnixMicro()+r.Int64N(last.UnixMicro()-first.UnixMicro())).UTC())
	}
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
		sink := newSink(t, cluster, "orders", client)
		batch := batchOf(len(times))
		var want []time.Time
		for i, d := range batch {
			d.Key, d.ID, d.OccurredOn = "k", fmt.Sprint(i), times[i]
		}
		for i := range batch {
			_, err := sink.Deliver(t.Context(), batch[i])
			if year := times[i].Year(); year < 1677 || year > 2262 {
				assertClass(t, sinks.ClassInvalid, err)
				require.ErrorIs(t, err, kafka.ErrTimestamp)
			}
			if err == nil {
				want = append(want, times[i])
			}
		}
		require.Greater(t, len(want), 6)
		for i, record := range cluster.Consume(t, "orders", len(want)) {
			e, err := kafka.Envelope(kafka.Record{Key: record.Key, Value: record.Value, Headers: kafka.Headers(record.Headers)})
			require.NoError(t, err)
			require.Equal(t, want[i], e.OccurredOn)
			require.WithinDuration(t, want[i], record.Timestamp, time.Millisecond)
		}
	})
}

func TestAHeaderWithATimeThatNoDatabaseHasIsNoNotification(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00", "0000-06-01T00:00:00Z"} {
		_, err := kafka.Envelope(kafka.Record{Headers: []kafka.Header{
			{Key: kafka.HeaderID, Value: []byte("1")}, {Key: kafka.HeaderType, Value: []byte("t")},
			{Key: kafka.HeaderVersion, Value: []byte("1")}, {Key: kafka.HeaderOccurredOn, Value: []byte(text)},
		}})
		require.ErrorIs(t, err, kafka.ErrRecord, text)
	}
}
