package kafka_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

func TestTheTopicCanComeFromTheNotification(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"shop.{{.Type}}":                           "shop.order.placed",
		"{{.Metadata.tenant}}.v{{.Version}}":       "acme.v2",
		`{{.Metadata.Get "tenant"}}-{{.Key}}`:      "acme-key_1",
		`{{.Type}}{{.Metadata.Get "not there"}}`:   "order.placed",
		`{{with .Metadata.tenant}}{{.}}-{{end}}in`: "acme-in",
	} {
		t.Run(text, func(t *testing.T) {
			cluster := kafkatest.Fake(t, kfake.SeedTopics(1, want))
			d := delivery("key_1")
			d.Metadata = notification.Metadata{"tenant": "acme"}
			sink := newSink(t, cluster, text)
			receipt, err := sink.Deliver(t.Context(), d)
			require.NoError(t, err)
			assert.Equal(t, "kafka "+want+"/0@0", string(receipt))
			assert.Equal(t, "key_1", string(cluster.Consume(t, want, 1)[0].Key))
			assert.NoError(t, sink.CheckHealth(t.Context()))
		})
	}
}

func TestANotificationWithoutALegalTopicIsInvalid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, tenant, says string }{
		{"{{.Metadata.missing}}", "", "missing"},
		{`{{.Metadata.Get "missing"}}`, "", "the topic is empty"},
		{"{{.Metadata.tenant}}", "a b", `"a b" is not a legal topic`},
		{"{{.Metadata.tenant}}", "acme/../other", `"acme/../other" is not`},
		{"{{.Metadata.tenant}}", "orders\n", `"orders\n" is not`},
		{"{{.Metadata.tenant}}.", ".", `".." is not`},
		{"{{.Metadata.tenant}}", "größe", `"größe" is not`},
		{"{{.Metadata.tenant}}", strings.Repeat("x", 250), "the name is 250 bytes long"},
	} {
		t.Run(c.text+" "+c.tenant, func(t *testing.T) {
			d := delivery("k")
			d.Metadata = notification.Metadata{"tenant": c.tenant}
			_, err := newSinkAt(t, []string{"127.0.0.1:1"}, c.text).Deliver(t.Context(), d)
			assertClass(t, sinks.ClassInvalid, err)
			assert.ErrorIs(t, err, kafka.ErrTopic)
			assert.ErrorContains(t, err, c.says)
		})
	}
}

func TestAnUnknownTopicFromDataIsTransient(t *testing.T) {
	t.Parallel()
	testAnUnknownTopicFromDataIsTransient(t, kafkatest.Fake(t))
}

func testAnUnknownTopicFromDataIsTransient(t *testing.T, cluster *kafkatest.Cluster) {
	known := cluster.CreateTopic(t, 1, nil)
	sink := newSink(t, cluster, "{{.Key}}")
	var workers sync.WaitGroup
	for range 16 { // sarama's breaker would open at the third record
		workers.Go(func() {
			_, err := sink.Deliver(t.Context(), delivery("nobody-made-this"))
			assertClass(t, sinks.ClassTransient, err)
			assert.ErrorContains(t, err, "topic nobody-made-this")
			assert.ErrorContains(t, err, "create the topic")
		})
		workers.Go(func() {
			_, err := sink.Deliver(t.Context(), delivery(known))
			assert.NoError(t, err)
		})
	}
	workers.Wait()
}

func TestATopicFromDataCanBeCreatedAndDeleted(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		cluster := kafkatest.Fake(t)
		sink := newSink(t, cluster, "{{.Metadata.topic}}", client)
		topic := cluster.CreateTopic(t, 1, nil)
		to := func() *notification.Delivery {
			d := delivery("k")
			d.Metadata = notification.Metadata{"topic": topic}
			return d
		}
		transient := func(err error) { assertClass(t, sinks.ClassTransient, err) }

		cluster.DeleteTopic(t, topic)
		_, err := sink.Deliver(t.Context(), to())
		transient(err)
		cluster.CreateAgain(t, topic)
		deliverAtLast(t, sink, to(), transient)
		cluster.DeleteTopic(t, topic)
		_, err = sink.Deliver(t.Context(), to())
		transient(err)
		cluster.CreateAgain(t, topic)
		deliverAtLast(t, sink, to(), transient)
	})
}

func TestATopicFromDataIsUnavailableWithoutABroker(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		for _, acks := range []string{kafka.AcksAll, kafka.AcksLeader} {
			t.Run("acks "+acks, func(t *testing.T) {
				cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
				cluster.Stop(t)
				sink := newSink(t, cluster, "{{.Key}}", client, func(c *kafka.Config) { c.Acks = acks })
				_, err := sink.Deliver(t.Context(), delivery("orders"))
				assertClass(t, sinks.ClassUnavailable, err)
				assertClass(t, sinks.ClassUnavailable, sink.CheckHealth(t.Context()))
				cluster.Start(t)
				deliverAtLast(t, sink, delivery("orders"), func(err error) { assertClass(t, sinks.ClassUnavailable, err) })
			})
		}
	})
}

// The client that requests topics reconnects after its connections have ended.
func TestANewTopicIsFoundAfterABrokersRestart(t *testing.T) {
	t.Parallel()
	testANewTopicIsFoundAfterABrokersRestart(t, kafkatest.Fake(t))
}

func testANewTopicIsFoundAfterABrokersRestart(t *testing.T, cluster *kafkatest.Cluster) {
	before, after := cluster.CreateTopic(t, 1, nil), cluster.CreateTopic(t, 1, nil)
	sink := newSink(t, cluster, "{{.Key}}")
	_, err := sink.Deliver(t.Context(), delivery(before))
	require.NoError(t, err)
	cluster.Stop(t)
	_, err = sink.Deliver(t.Context(), delivery(after))
	assertClass(t, sinks.ClassUnavailable, err)
	cluster.Start(t)
	deliverAtLast(t, sink, delivery(after), func(err error) { assertClass(t, sinks.ClassUnavailable, err) })
}

func TestAClosedSinkRequestsNoTopic(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
	sink := newSink(t, cluster, "{{.Key}}")
	_, err := sink.Deliver(t.Context(), delivery("orders"))
	require.NoError(t, err)
	require.NoError(t, sink.Close(t.Context()))
	_, err = sink.Deliver(t.Context(), delivery("other"))
	assert.ErrorIs(t, err, kafka.ErrClosed)
	assertClass(t, sinks.ClassUnavailable, err)
}

func TestAllTopicsAreRequestedOverTheSameConnections(t *testing.T) {
	t.Parallel()
	const count = 302
	batch := batchOf(count)
	topics := make([]string, count)
	for i, d := range batch {
		topics[i] = d.Key
	}
	for name, c := range map[string]struct {
		known   bool
		deliver func(*kafka.Sink) []error
	}{
		"known, in a batch":   {true, func(sink *kafka.Sink) []error { return inABatch(t, sink, batch) }},
		"known, each alone":   {true, func(sink *kafka.Sink) []error { return eachAlone(t, sink, batch) }},
		"unknown, in a batch": {false, func(sink *kafka.Sink) []error { return inABatch(t, sink, batch) }},
		"unknown, each alone": {false, func(sink *kafka.Sink) []error { return eachAlone(t, sink, batch) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var connections atomic.Int64
			options := []kfake.Opt{counting(&connections)}
			if c.known {
				options = append(options, kfake.SeedTopics(1, topics...))
			}
			cluster := kafkatest.Fake(t, options...)
			requests := cluster.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Count: -1, Observe: true})
			begin := time.Now()
			for _, err := range c.deliver(newSink(t, cluster, "{{.Key}}", patient)) {
				if c.known {
					assert.NoError(t, err)
				} else {
					assertClass(t, sinks.ClassTransient, err)
				}
			}
			t.Logf("%d connections, %d requests for metadata, %s", connections.Load(), requests.Hits(), time.Since(begin))
			assert.LessOrEqual(t, connections.Load(), int64(4), "a seed and the broker that it named, for the producer and for topic requests")
		})
	}
}

func inABatch(t *testing.T, sink *kafka.Sink, batch []*notification.Delivery) []error {
	errs := make([]error, len(batch))
	for i, r := range sink.DeliverBatch(t.Context(), batch) {
		errs[i] = r.Err
	}
	return errs
}

func eachAlone(t *testing.T, sink *kafka.Sink, batch []*notification.Delivery) []error {
	errs := make([]error, len(batch))
	var workers errgroup.Group
	workers.SetLimit(16)
	for i, d := range batch {
		workers.Go(func() error {
			_, errs[i] = sink.Deliver(t.Context(), d)
			return nil
		})
	}
	_ = workers.Wait()
	return errs
}
