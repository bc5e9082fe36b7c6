package kafka_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

func TestAnUnknownTopicIsUnavailable(t *testing.T) {
	t.Parallel()
	testAnUnknownTopicIsUnavailable(t, kafkatest.Fake(t))
}

func testAnUnknownTopicIsUnavailable(t *testing.T, cluster *kafkatest.Cluster) {
	sink := newSink(t, cluster, "nobody-made-this")
	_, err := sink.Deliver(t.Context(), delivery("k"))
	assertClass(t, sinks.ClassUnavailable, err)
	assert.ErrorContains(t, err, "topic nobody-made-this")
	assert.ErrorContains(t, err, "create the topic")
	assertClass(t, sinks.ClassUnavailable, sink.CheckHealth(t.Context()))
}

func TestManyDeliveriesConnectOnce(t *testing.T) {
	t.Parallel()
	var connections atomic.Int64
	cluster := kafkatest.Fake(t, counting(&connections))
	sink := newSink(t, cluster, "nobody-made-this", patient)
	var workers sync.WaitGroup
	for range 64 {
		workers.Go(func() {
			_, err := sink.Deliver(t.Context(), delivery("k"))
			assertClass(t, sinks.ClassUnavailable, err)
		})
	}
	workers.Wait()
	assert.LessOrEqual(t, connections.Load(), int64(2), "a seed and the broker that it named")
}

func TestACancelledDeliveryStopsWaitingForAConnection(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		silent := servertest.Silent(t)
		sink := newSinkAt(t, []string{silent}, "orders", client, func(c *kafka.Config) { c.Timeout = time.Hour })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		begin := time.Now()
		_, err := sink.Deliver(ctx, delivery("k"))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Less(t, time.Since(begin), time.Minute)
	})
}

func TestDeliveriesAfterCloseAreUnavailable(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		cluster := kafkatest.Fake(t)
		sink := newSink(t, cluster, cluster.CreateTopic(t, 1, nil), client)
		_, err := sink.Deliver(t.Context(), delivery("k"))
		require.NoError(t, err)
		require.NoError(t, sink.Close(t.Context()))
		_, err = sink.Deliver(t.Context(), delivery("k"))
		assert.ErrorIs(t, err, kafka.ErrClosed)
		assertClass(t, sinks.ClassUnavailable, err)
		assertClass(t, sinks.ClassUnavailable, sink.CheckHealth(t.Context()))
	})
}

func TestCloseEndsAnAttemptToConnect(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		silent := servertest.Silent(t)
		sink := newSinkAt(t, []string{silent}, "orders", client, func(c *kafka.Config) { c.Timeout = time.Hour })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := sink.Deliver(ctx, delivery("k"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		within, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		require.NoError(t, sink.Close(within)) // TestMain checks that no goroutine is left
	})
}

func TestCloseEndsDeliveriesInFlightWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		cluster := kafkatest.Fake(t)
		sink := newSink(t, cluster, cluster.CreateTopic(t, 1, nil), client, func(c *kafka.Config) { c.Timeout = time.Hour })
		_, err := sink.Deliver(t.Context(), delivery("k"))
		require.NoError(t, err)
		arrived := make(chan struct{})
		cluster.Fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			close(arrived)
			return nil, nil, true
		})
		ended := make(chan error, 1)
		go func() {
			_, err := sink.Deliver(t.Context(), delivery("k"))
			ended <- err
		}()
		await(t, arrived, "no request came")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		assert.ErrorIs(t, sink.Close(ctx), context.DeadlineExceeded)
		select {
		case err := <-ended:
			assert.ErrorIs(t, err, kafka.ErrClosed)
			assertClass(t, sinks.ClassUnavailable, err)
		case <-time.After(time.Minute):
			t.Fatal("a delivery is still in flight")
		}
	})
}
