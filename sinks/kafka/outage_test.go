package kafka_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

func TestUnavailableUntilABrokerAppears(t *testing.T) {
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	cluster.Stop(t)
	sink := newSink(t, cluster, topic)
	_, err := sink.Deliver(t.Context(), delivery("k"))
	assertClass(t, sinks.ClassUnavailable, err)

	cluster.Start(t)
	deliverAtLast(t, sink, delivery("k"), func(err error) { assertClass(t, sinks.ClassUnavailable, err) })
	assert.Len(t, cluster.Consume(t, topic, 1), 1)
}

func TestABrokerThatFallsSilentEndsADeliveryWithinTheTimeout(t *testing.T) {
	for _, idempotent := range []bool{true, false} {
		t.Run(fmt.Sprintf("idempotent=%v", idempotent), func(t *testing.T) {
			const timeout = 2 * time.Second
			cluster := kafkatest.Fake(t)
			sink := newSink(t, cluster, cluster.CreateTopic(t, 1, nil), func(c *kafka.Config) {
				c.Timeout, c.Idempotent = timeout, &idempotent
			})
			_, err := sink.Deliver(t.Context(), delivery("k"))
			require.NoError(t, err)
			cluster.Fake.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
				cluster.Fake.KeepControl()
				return nil, nil, true // read, never answered
			})

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var workers sync.WaitGroup
			begin := time.Now()
			for i := range 256 {
				workers.Go(func() {
					_, err := sink.Deliver(t.Context(), delivery(fmt.Sprint(i)))
					assertClass(t, sinks.ClassUnavailable, err)
				})
			}
			workers.Go(func() {
				_, err := sink.Deliver(ctx, delivery("cancelled"))
				assert.ErrorIs(t, err, context.Canceled)
			})
			cancel()
			workers.Wait()
			assert.Less(t, time.Since(begin), 2*timeout)
		})
	}
}

func TestABrokerThatDiesEndsAllDeliveriesInFlightWithinTheTimeout(t *testing.T) {
	cluster := kafkatest.Fake(t)
	sink := newSink(t, cluster, cluster.CreateTopic(t, 6, nil))
	_, err := sink.Deliver(t.Context(), delivery("k"))
	require.NoError(t, err)
	// The broker swallows a request, and dies while the deliveries wait.
	arrived := make(chan struct{})
	cluster.Fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(arrived)
		return nil, nil, true
	})
	var workers sync.WaitGroup
	for i := range 256 {
		workers.Go(func() {
			if _, err := sink.Deliver(t.Context(), delivery(fmt.Sprint(i))); err != nil {
				assertClass(t, sinks.ClassUnavailable, err)
			}
		})
	}
	await(t, arrived, "no request came")
	begin := time.Now()
	cluster.Stop(t)
	workers.Wait()
	assert.Less(t, time.Since(begin), 10*time.Second)
	t.Log("all ended after", time.Since(begin))
}

func TestHealthFollowsTheBroker(t *testing.T) { testHealthFollowsTheBroker(t, kafkatest.Fake(t)) }

func testHealthFollowsTheBroker(t *testing.T, cluster *kafkatest.Cluster) {
	sink := newSink(t, cluster, cluster.CreateTopic(t, 1, nil))
	require.NoError(t, sink.CheckHealth(t.Context()))
	cluster.Stop(t)
	assertClass(t, sinks.ClassUnavailable, sink.CheckHealth(t.Context()))
	cluster.Start(t)
	require.Eventually(t, func() bool { return sink.CheckHealth(t.Context()) == nil }, time.Minute, 100*time.Millisecond)
}
