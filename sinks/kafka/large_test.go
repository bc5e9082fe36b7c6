package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
	"github.com/waybill-go/waybill/sinks/large"
	"github.com/waybill-go/waybill/sinks/large/largetest"
)

// newStoringSink makes a sink that stores values above 1 KiB in a folder.
func newStoringSink(t testing.TB, brokers []string, change ...func(*kafka.Config)) (*kafka.Sink, *largetest.Folder) {
	t.Helper()
	folder := &largetest.Folder{Path: t.TempDir()}
	c := kafka.Config{Brokers: brokers, Topic: "orders", Timeout: time.Minute, Large: large.Config{Store: "folder://bucket", Above: "1KiB"}}
	for _, f := range change {
		f(&c)
	}
	sink, err := kafka.New(sinks.Instance{Name: "events", Stores: folder.Stores(), Contracts: totals{}}, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.Close(context.WithoutCancel(t.Context()))) })
	return sink, folder
}

// largeDelivery returns a delivery with a payload of about 3 KiB.
func largeDelivery(key string) *notification.Delivery {
	d := delivery(key)
	d.Payload = []byte(`{"total":12,"note":"` + strings.Repeat("x", 3<<10) + `"}`)
	return d
}

// fetched returns the envelope of a record with the body that the record points to.
func fetched(t *testing.T, folder *largetest.Folder, r *kgo.Record) notification.Envelope {
	t.Helper()
	e := envelopeOf(t, r)
	whole, err := large.Fetch(t.Context(), &e, folder.Get)
	require.NoError(t, err)
	return *whole
}

func TestALargeValueIsStoredAndItsRecordHasThePointer(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*kafka.Config){
		"json":        func(*kafka.Config) {},
		"cloudevents": func(c *kafka.Config) { c.Format, c.Source = kafka.FormatBinary, "/shop" },
		"watermill":   withWatermill,
		"no size":     func(c *kafka.Config) { c.Large.Above, c.MaxMessageBytes = "", 2048 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
			sink, folder := newStoringSink(t, cluster.Brokers, change)
			require.NoError(t, sink.CheckHealth(t.Context()))
			small, d := delivery("a"), largeDelivery("k")
			d.Metadata = notification.Metadata{"content-type": "application/json", "tenant": "acme"}
			deliverAll(t, sink, small)
			deliverAll(t, sink, d)
			deliverAll(t, sink, d) // again, as after a crash

			records := cluster.Consume(t, "orders", 3)
			require.Equal(t, small.Payload, records[0].Value)
			require.NotContains(t, headersOf(records[0]), large.AttributeSize)
			require.EqualValues(t, 2, folder.Puts.Load())
			for _, r := range records[1:] {
				require.JSONEq(t, `["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"bucket","s3Key":"events/`+d.ID+`"}]`, string(r.Value))
				require.Equal(t, fmt.Sprint(len(d.Payload)), headersOf(r)["ExtendedPayloadSize"])
				require.Len(t, r.Headers, len(headersOf(r)), "no header is there twice")
				require.Equal(t, *d.Envelope, fetched(t, folder, r))
			}
		})
	}
}

func TestWithoutAStoreALargeRecordIsInvalid(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
	small := func(c *kafka.Config) { c.MaxMessageBytes = 2048 }
	_, err := newSink(t, cluster, "orders", small).Deliver(t.Context(), largeDelivery("k"))
	assertClass(t, sinks.ClassInvalid, err)
	require.ErrorContains(t, err, "or set large.store")
	stores, folder := newStoringSink(t, cluster.Brokers, small)
	d := delivery("k")
	d.Metadata = notification.Metadata{"note": strings.Repeat("x", 3<<10)} // headers are never stored
	_, err = stores.Deliver(t.Context(), d)
	assertClass(t, sinks.ClassInvalid, err)
	require.ErrorContains(t, err, "max_message_bytes is 2048")
	require.EqualValues(t, 1, folder.Puts.Load())
}

func TestWhatIsEncodedIsStored(t *testing.T) {
	t.Parallel()
	cluster, r := kafkatest.Fake(t, kfake.SeedTopics(1, "orders")), newRegistry(t)
	sink, folder := newStoringSink(t, cluster.Brokers, func(c *kafka.Config) {
		c.Large.Above = "3" // an encoded value has 6 bytes
		c.Encoding = encoding.Config{Format: encoding.FormatAvro, Register: true, Registry: encoding.Registry{URL: r.URL()}}
	})
	deliverAll(t, sink, delivery("k"))
	whole := fetched(t, folder, cluster.Consume(t, "orders", 1)[0])
	require.Equal(t, "application/vnd.confluent.avro", whole.Metadata["content-type"])
	require.Equal(t, "\x00\x00\x00\x00\x01\x18", string(whole.Payload))
}

func TestAValueThatIsNotStoredFailsOnlyItsDeliveryAndTheLaterOnesOfItsKey(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
		sink, folder := newStoringSink(t, cluster.Brokers, client)
		bad := largeDelivery("a")
		folder.Fail = func(_ context.Context, name string) error {
			if strings.HasSuffix(name, bad.ID) {
				return sinks.Unavailable(errors.New("no such bucket"))
			}
			return nil
		}
		results := sink.DeliverBatch(t.Context(), []*notification.Delivery{delivery("a"), bad, delivery("a"), largeDelivery("b"), delivery("c")})
		require.NoError(t, results[0].Err)
		assertClass(t, sinks.ClassUnavailable, results[1].Err)
		require.ErrorContains(t, results[1].Err, "large body: unavailable: no such bucket")
		require.Error(t, results[2].Err)
		require.NoError(t, results[3].Err)
		require.NoError(t, results[4].Err)
		require.Len(t, cluster.ConsumeAll(t, "orders", 0), 3)
		folder.Fail = func(context.Context, string) error { return sinks.Unavailable(errors.New("no such bucket")) }
		assertUnavailable(t, sink.CheckHealth(t.Context()), "no such bucket")
	})
}

func TestTheLargeValuesOfABatchAreStoredInParallel(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
	sink, folder := newStoringSink(t, cluster.Brokers)
	var waiting atomic.Int64
	all := make(chan struct{})
	folder.Fail = func(ctx context.Context, _ string) error { // each waits until all four are here
		if waiting.Add(1) == 4 {
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	deliverAll(t, sink, largeDelivery("a"), largeDelivery("a"), largeDelivery("b"), largeDelivery(""))
	require.Len(t, cluster.ConsumeAll(t, "orders", 0), 4)
}

func TestAStoreThatHangsIsUnavailable(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
	sink, folder := newStoringSink(t, cluster.Brokers, func(c *kafka.Config) { c.Timeout = 5 * time.Second })
	folder.Fail = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
	results := sink.DeliverBatch(t.Context(), []*notification.Delivery{largeDelivery("a"), delivery("b")})
	assertUnavailable(t, results[0].Err, "large body")
	require.NoError(t, results[1].Err, "the store's time is not that of the cluster")

	ended, cancel := context.WithCancel(t.Context())
	folder.Fail = func(ctx context.Context, _ string) error { cancel(); <-ctx.Done(); return ctx.Err() }
	_, err := sink.Deliver(ended, largeDelivery("a"))
	require.ErrorIs(t, err, context.Canceled)
	assertClass(t, sinks.ClassCancelled, err)
}

func TestLargeValuesAreWrittenExactlyOnce(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
	sink, folder := newStoringSink(t, cluster.Brokers, exactlyOnce("positions"))
	ledger, _ := openLedger(t, sink, onlyLane)
	d, bad := largeDelivery("a"), largeDelivery("b")
	d.Metadata = notification.Metadata{"tenant": "acme"}
	folder.Fail = func(_ context.Context, name string) error {
		if strings.HasSuffix(name, bad.ID) {
			return sinks.Unavailable(errors.New("no such bucket"))
		}
		return nil
	}
	results := ledger.DeliverBatch(t.Context(), []*notification.Delivery{d, bad})
	require.NoError(t, results[0].Err)
	assertClass(t, sinks.ClassUnavailable, results[1].Err)
	require.NoError(t, ledger.Err(), "the transaction goes on")
	require.NoError(t, ledger.Commit(t.Context(), []byte("note")))
	records := cluster.ConsumeCommitted(t, "orders")
	require.Len(t, records, 1)
	require.Equal(t, *d.Envelope, fetched(t, folder, records[0]))
}

func TestALargeCollectionIsStored(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
	sink, folder := newStoringSink(t, cluster.Brokers, inArrays)
	c := collectionOf(largeDelivery("a"), delivery("b"))
	_, err := sink.DeliverCollection(t.Context(), c)
	require.NoError(t, err)
	record := cluster.Consume(t, "orders", 1)[0]
	require.NotContains(t, headersOf(record), kafka.HeaderType)
	at, err := large.ParsePointer(record.Value)
	require.NoError(t, err)
	require.Equal(t, large.Pointer{Scheme: large.SchemeS3, Bucket: "bucket", Key: "events/" + c.ID}, at)
	record.Value, err = folder.Get(t.Context(), at)
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(record.Value, []byte("[")))
	require.Len(t, arrayIn(t, record), 2)

	folder.Fail = func(context.Context, string) error { return sinks.Unavailable(errors.New("no such bucket")) }
	_, err = sink.DeliverCollection(t.Context(), c)
	assertUnavailable(t, err, "no such bucket")
	records, _ := newStoringSink(t, cluster.Brokers)
	_, err = records.DeliverCollection(t.Context(), c)
	require.NoError(t, err)
}

// A forwarder that reads the topic passes on what it got: the pointer stays one.
func TestAPointerCanBeDeliveredAgain(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*kafka.Config){
		"json":        func(*kafka.Config) {},
		"cloudevents": func(c *kafka.Config) { c.Format, c.Source = kafka.FormatBinary, "/shop" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
			sink, folder := newStoringSink(t, cluster.Brokers, change)
			d := largeDelivery("k")
			deliverAll(t, sink, d)
			got := envelopeOf(t, cluster.Consume(t, "orders", 1)[0])
			deliverAll(t, sink, &notification.Delivery{Envelope: &got})
			require.Equal(t, d.Payload, fetched(t, folder, cluster.Consume(t, "orders", 2)[1]).Payload)
			require.EqualValues(t, 1, folder.Puts.Load())
		})
	}
}
