package kafka_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestConformance(t *testing.T) {
	t.Run(kafka.ClientFranz, func(t *testing.T) { testConformance(t, withFranz) })
	t.Run("collections in arrays", func(t *testing.T) {
		testConformance(t, func(c *kafka.Config) { c.Collection = kafka.CollectionArray })
	})
	t.Run(kafka.ClientWatermill, func(t *testing.T) { testConformance(t, withWatermill) })
}

func testConformance(t *testing.T, client func(*kafka.Config)) {
	var (
		cluster *kafkatest.Cluster
		topic   string
	)
	unopened := func(t *testing.T, brokers []string, topic string) sinks.Sink {
		c := kafka.Config{Brokers: brokers, Topic: topic, Timeout: time.Minute}
		client(&c)
		sink, err := kafka.New(sinks.Instance{Name: "events"}, c)
		require.NoError(t, err)
		return sink
	}
	recent := func(n int) *notification.Delivery {
		d := sinktest.NewDelivery(n)
		d.OccurredOn = time.Now().UTC().Truncate(time.Microsecond) // a broker deletes old records
		return d
	}
	c := kafka.Config{}
	client(&c)
	collected := func(t *testing.T) (all []sinktest.Collected) {
		for _, r := range cluster.ConsumeAll(t, topic, 0) {
			all = append(all, sinktest.Collected{
				ID: headersOf(r)["id"], Raw: append(r.Value, fmt.Sprint(string(r.Key), r.Headers, r.Timestamp)...), Members: arrayIn(t, r),
			})
		}
		return all
	}
	if c.Collection != kafka.CollectionArray {
		collected = nil
	}
	sinktest.Run(t, sinktest.Subject{
		New: func(t *testing.T) sinks.Sink {
			cluster = kafkatest.Fake(t)
			topic = cluster.CreateTopic(t, 1, nil)
			return unopened(t, cluster.Brokers, topic)
		},
		Received: func(t *testing.T) []notification.Envelope {
			var es []notification.Envelope
			for _, r := range cluster.ConsumeAll(t, topic, 0) {
				es = append(es, envelopeOf(t, r))
			}
			return es
		},
		Collected: collected,
		Delivery:  recent,
		Refused: func(n int) *notification.Delivery {
			d := recent(n)
			d.Payload = make([]byte, 2<<20)
			return d
		},
		Broken: map[sinks.Class]func(*testing.T) sinks.Sink{
			sinks.ClassUnavailable: func(t *testing.T) sinks.Sink { return unopened(t, []string{"127.0.0.1:1"}, "orders") },
		},
		Stuck: func(t *testing.T) sinks.Sink {
			cluster := kafkatest.Fake(t)
			sink := unopened(t, cluster.Brokers, cluster.CreateTopic(t, 1, nil))
			_, err := sink.Deliver(t.Context(), recent(0)) // the next delivery is then in flight rather than connecting
			require.NoError(t, err)
			silence(cluster)
			return sink
		},
		Receipts: true,
	})
}

// envelopeOf converts a record back to an envelope, as a consumer does.
func envelopeOf(t *testing.T, r *kgo.Record) notification.Envelope {
	t.Helper()
	e, err := kafka.Envelope(kafka.Record{Key: r.Key, Value: r.Value, Headers: kafka.Headers(r.Headers)})
	require.NoError(t, err)
	if e.Metadata == nil {
		e.Metadata = notification.Metadata{}
	}
	return *e
}
