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

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

func TestDeliveriesAreUnavailableUntilABrokerStarts(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		cluster := kafkatest.Fake(t)
		topic := cluster.CreateTopic(t, 1, nil)
		cluster.Stop(t)
		sink := newSink(t, cluster, topic, client)
		_, err := sink.Deliver(t.Context(), delivery("k"))
		assertClass(t, sinks.ClassUnavailable, err)

		cluster.Start(t)
		deliverAtLast(t, sink, delivery("k"), func(err error) { assertClass(t, sinks.ClassUnavailable, err) })
		assert.Len(t, cluster.Consume(t, topic, 1), 1)
	})
}

func TestADeliveryTimesOutIfABrokerStopsAnswering(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		for _, acks := range []string{kafka.AcksAll, kafka.AcksLeader} {
			t.Run("acks "+acks, func(t *testing.T) {
				cluster := kafkatest.Fake(t)
				sink := newSink(t, cluster, cluster.CreateTopic(t, 1, nil), client, func(c *kafka.Config) {
					c.Timeout, c.Acks = 2*time.Second, acks
				})
				deliverAtLast(t, sink, delivery("k"), func(error) {})
				silence(cluster)
				var workers sync.WaitGroup
				begin := time.Now()
				for i := range 256 {
					workers.Go(func() {
						_, err := sink.Deliver(t.Context(), delivery(fmt.Sprint(i)))
						assertClass(t, sinks.ClassUnavailable, err)
					})
				}
				workers.Wait()
				assert.Less(t, time.Since(begin), time.Minute)
			})
		}
	})
}

// After a delivery has timed out, the client does not send its record again.
func TestADeliveryThatTimesOutIsNotSentLater(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		for name, deliver := range map[string]func(*kafka.Sink, context.Context, *notification.Delivery) error{
			"alone": func(s *kafka.Sink, ctx context.Context, d *notification.Delivery) error {
				_, err := s.Deliver(ctx, d)
				return err
			},
			"in a batch": func(s *kafka.Sink, ctx context.Context, d *notification.Delivery) error {
				return s.DeliverBatch(ctx, []*notification.Delivery{d})[0].Err
			},
		} {
			t.Run(name, func(t *testing.T) {
				cluster := kafkatest.Fake(t)
				topic := cluster.CreateTopic(t, 1, nil)
				sink := newSink(t, cluster, topic, client, func(c *kafka.Config) { c.Timeout = 5 * time.Minute })
				require.NoError(t, deliver(sink, t.Context(), delivery("first")))
				silence(cluster)

				other := make(chan error, 1)
				go func() { other <- deliver(sink, t.Context(), delivery("other")) }()
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(10*time.Millisecond, cancel)
				err := deliver(sink, ctx, delivery("cancelled"))
				assert.Equal(t, context.Canceled, err)
				select {
				case err := <-other:
					assertClass(t, sinks.ClassUnavailable, err)
					assert.ErrorIs(t, err, kafka.ErrOverdue)
				case <-time.After(2 * time.Minute): // less than the timeout
					t.Fatal("the other delivery is still in flight")
				}

				ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				assertLate(t, deliver(sink, ctx, delivery("late")))

				cluster.Stop(t)
				cluster.Start(t)
				deliverAtLast(t, sink, delivery("last"), func(err error) { assertClass(t, sinks.ClassUnavailable, err) })
				records := cluster.Consume(t, topic, 2)
				assert.Equal(t, []string{"first", "last"}, []string{string(records[0].Key), string(records[1].Key)})
				assert.Equal(t, 2, cluster.Count(t, topic))
			})
		}
	})
}

// A healthy cluster answers within the grace after the end of the context.
func TestADeliveryInFlightMaySucceedAfterItsContextEnded(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		cluster := kafkatest.Fake(t)
		sink := newSink(t, cluster, cluster.CreateTopic(t, 1, nil), client, func(c *kafka.Config) { c.SetGrace(time.Minute) })
		_, err := sink.Deliver(t.Context(), delivery("k"))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cluster.Fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			cancel() // the record is in flight
			return nil, nil, false
		})
		receipt, err := sink.Deliver(ctx, delivery("k"))
		require.NoError(t, err)
		assert.Contains(t, receipt, "/0@1")
	})
}

func TestAllDeliveriesInFlightEndWithinTheTimeoutIfABrokerDies(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, client func(*kafka.Config)) {
		cluster := kafkatest.Fake(t)
		sink := newSink(t, cluster, cluster.CreateTopic(t, 6, nil), client)
		_, err := sink.Deliver(t.Context(), delivery("k"))
		require.NoError(t, err)
		// The broker does not answer a request, and dies while the deliveries wait.
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
		assert.Less(t, time.Since(begin), 3*kafka.DefaultTimeout, "the timeout, and more on a machine that stalls")
		t.Log("all ended after", time.Since(begin))
	})
}

func TestCheckHealthReflectsTheStateOfTheBroker(t *testing.T) {
	t.Parallel()
	testCheckHealthReflectsTheStateOfTheBroker(t, kafkatest.Fake(t))
}

func testCheckHealthReflectsTheStateOfTheBroker(t *testing.T, cluster *kafkatest.Cluster) {
	sink := newSink(t, cluster, cluster.CreateTopic(t, 1, nil))
	require.NoError(t, sink.CheckHealth(t.Context()))
	cluster.Stop(t)
	assertClass(t, sinks.ClassUnavailable, sink.CheckHealth(t.Context()))
	cluster.Start(t)
	require.Eventually(t, func() bool { return sink.CheckHealth(t.Context()) == nil }, time.Minute, 100*time.Millisecond)
}
