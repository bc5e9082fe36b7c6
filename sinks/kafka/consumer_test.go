package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
	"github.com/waybill-go/waybill/sinks/kafka/watermill"
)

func TestAConsumerGetsThePublishedEnvelope(t *testing.T) {
	t.Parallel()
	testAConsumerGetsThePublishedEnvelope(t, kafkatest.Fake(t))
}

func testAConsumerGetsThePublishedEnvelope(t *testing.T, cluster *kafkatest.Cluster) {
	for format, source := range map[string]string{kafka.FormatJSON: "", kafka.FormatBinary: "/shop"} {
		t.Run(format, func(t *testing.T) {
			topic := cluster.CreateTopic(t, 1, nil)
			sink := newSink(t, cluster, topic, func(c *kafka.Config) { c.Format, c.Source = format, source })
			d := delivery("order-17")
			d.Metadata = notification.Metadata{
				notification.MetadataContentType: "application/json",
				notification.MetadataTraceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
				"tenant":                         "gr\u00f6\u00dfe",
			}
			if format == kafka.FormatJSON {
				d.Metadata["id"], d.Metadata["metadata-id"], d.Metadata["Tenant-Name"] = "mine", "mine, too", ""
			}
			_, err := sink.Deliver(t.Context(), d)
			require.NoError(t, err)

			r := cluster.Consume(t, topic, 1)[0]
			e, err := kafka.Envelope(kafka.Record{Key: r.Key, Value: r.Value, Headers: kafka.Headers(r.Headers)})
			require.NoError(t, err)
			assert.Equal(t, d.Envelope, e, "with franz-go")

			consumer, err := sarama.NewConsumer(cluster.Brokers, nil)
			require.NoError(t, err)
			defer consumer.Close()
			partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
			require.NoError(t, err)
			defer partition.Close()
			select {
			case m := <-partition.Messages():
				e, err = kafka.Envelope(watermill.RecordOf(m))
				require.NoError(t, err)
				assert.Equal(t, d.Envelope, e, "with sarama")
			case <-time.After(time.Minute):
				t.Fatal("no record came")
			}
		})
	}
}

func TestARecordThatIsNotANotificationIsRefused(t *testing.T) {
	t.Parallel()
	record := func(pairs ...string) kafka.Record {
		var r kafka.Record
		for i := 0; i < len(pairs); i += 2 {
			r.Headers = append(r.Headers, kafka.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
		}
		return r
	}
	const now = "2026-07-01T12:00:00.000000Z"
	for want, r := range map[string]kafka.Record{
		"header id is missing, and so is ce_specversion":       record("type", "t"),
		"header type is missing":                               record("id", "1", "version", "1", "occurred-on", now),
		`header version is "one", which is not a whole number`: record("id", "1", "type", "t", "version", "one", "occurred-on", now),
		"version 0 is outside":                                 record("id", "1", "type", "t", "version", "0", "occurred-on", now),
		`header occurred-on is "noon", which is not a time`:    record("id", "1", "type", "t", "version", "1", "occurred-on", "noon"),
		`header ce_specversion is "2.0", want 1.0`:             record("ce_specversion", "2.0", "ce_id", "1", "ce_type", "t", "ce_payloadversion", "1"),
		"header ce_payloadversion is missing":                  record("ce_specversion", "1.0", "ce_id", "1", "ce_type", "t"),
		`header ce_time is "", which is not a time`:            record("ce_specversion", "1.0", "ce_id", "1", "ce_type", "t", "ce_payloadversion", "1", "ce_time", ""),
		"type name is empty":                                   record("id", "1", "type", "", "version", "1", "occurred-on", now),
	} {
		_, err := kafka.Envelope(r)
		assert.ErrorIs(t, err, kafka.ErrRecord)
		assert.ErrorContains(t, err, want)
		assertClass(t, sinks.ClassPermanent, err)
	}
}

type OrderPlaced struct{ Order string }

// A consumer passes the records that it reads to a sink of functions, as the engine would. The class
// of an error decides what happens to a record.
func ExampleEnvelope() {
	cluster := kfake.MustCluster(kfake.SeedTopics(1, "orders")) // instead of a real one
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...),
		kgo.ConsumerGroup("shipping"), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	publishOrders(ctx, cluster.ListenAddrs())

	types := registry.New()
	if err := registry.Register[OrderPlaced](types, "order.placed"); err != nil {
		log.Fatal(err)
	}
	tries := 0
	handlers := function.Mux(types, function.On(func(_ context.Context, o OrderPlaced) error {
		switch {
		case o.Order == "":
			return sinks.Permanent(errors.New("which order?"))
		case o.Order == "o-2" && tries < 2:
			tries++
			return errors.New("the warehouse does not answer")
		}
		fmt.Println("reserve the goods of", o.Order)
		return nil
	}))

	for left := 3; left > 0; {
		for _, r := range client.PollFetches(ctx).Records() {
			switch err := handle(ctx, handlers, r); {
			case ctx.Err() != nil:
				return // the consumer will read the record again
			case err != nil:
				fmt.Println("to the dead letters:", err) // for example a separate topic
			}
			if err := client.CommitRecords(ctx, r); err != nil {
				log.Fatal(err)
			}
			left--
		}
	}
	// Output:
	// reserve the goods of o-1
	// again: the warehouse does not answer
	// again: the warehouse does not answer
	// reserve the goods of o-2
	// to the dead letters: permanent: which order?
}

// handle retries until it can return nil or a permanent error, or until ctx ends.
func handle(ctx context.Context, handlers sinks.Sink, r *kgo.Record) error {
	e, err := kafka.Envelope(kafka.Record{Key: r.Key, Value: r.Value, Headers: kafka.Headers(r.Headers)})
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		_, err := handlers.Deliver(ctx, &notification.Delivery{Envelope: e, Attempt: attempt})
		if class, _ := sinks.Classify(err); err == nil || class == sinks.ClassPermanent || class == sinks.ClassInvalid || ctx.Err() != nil {
			return err
		}
		fmt.Println("again:", err) // after a pause; the partition waits, which keeps the order
	}
}

func publishOrders(ctx context.Context, brokers []string) {
	sink, err := kafka.New(sinks.Instance{Name: "events"}, kafka.Config{Brokers: brokers, Topic: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	defer sink.Close(ctx)
	for _, payload := range []string{`{"Order":"o-1"}`, `{"Order":"o-2"}`, `{"Order":""}`} {
		_, err := sink.Deliver(ctx, &notification.Delivery{Envelope: &notification.Envelope{
			ID: notification.NewID(), Type: "order.placed", Version: 1, OccurredOn: time.Now(), Payload: []byte(payload),
		}})
		if err != nil {
			log.Fatal(err)
		}
	}
}
