package forwarder_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// ignoringDeadlines is a sink that ignores its context at the first attempt of ids that begin with "stuck":
// it returns after five minutes, with a result.
func ignoringDeadlines(outcome error) *script {
	return &script{answer: func(_ context.Context, d *notification.Delivery) error {
		if d.Attempt == 1 && strings.HasPrefix(d.ID, "stuck") {
			time.Sleep(5 * time.Minute)
			return outcome
		}
		time.Sleep(time.Second)
		return nil
	}}
}

func TestACallThatIgnoresItsDeadlineIsRetried(t *testing.T) {
	for name, outcome := range map[string]error{"delivered": nil, "failed": errors.New("500"), "dead": sinks.Permanent(errors.New("400"))} {
		t.Run("and later returns "+name, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				s := ignoringDeadlines(outcome)
				o.append("t", "k", "stuck", "next")
				f := o.one(forwarder.Sink{Sink: s, Timeout: 8 * time.Second, Parallelism: forwarder.Parallelism{Threshold: 2}, Retry: forwarder.Retry{Initial: 30 * time.Second}})
				time.Sleep(8 * time.Second)
				require.Zero(t, f.Stats()[0].Abandoned)
				require.Empty(t, o.parked())
				pass(6 * time.Second)
				require.Equal(t, forwarder.Stats{Sink: "sink", Failed: 1, Abandoned: 1}, f.Stats()[0])
				require.Equal(t, []string{"sink retrying stuck", "sink blocked next"}, o.parked())
				require.Contains(t, o.parkedOf("stuck").LastError, forwarder.ErrAbandoned.Error())

				o.append("t", "", numbered("", 10)...)
				s.mostAtOnce()
				pass(2 * time.Minute)
				require.Equal(t, 2, s.mostAtOnce(), "the abandoned call still uses a slot")
				given := slices.DeleteFunc(s.given(), func(id string) bool { return id[0] == '0' })
				require.Equal(t, []string{"stuck", "stuck", "next"}, given)
				require.Equal(t, 2, s.attempts["stuck"])
				require.Empty(t, o.parked())

				pass(5 * time.Minute)
				require.Equal(t, forwarder.Stats{Sink: "sink", Delivered: 12, Failed: 1}, f.Stats()[0], "the late outcome does not count")
				require.Empty(t, o.parked())
				f.publish("t", "", numbered("", 10)...)
				time.Sleep(time.Minute)
				require.Equal(t, 2, s.mostAtOnce(), "the slot is free again")
				require.Len(t, s.given(), 10)
			})
		})
	}
}

func TestAnAbandonedCallDoesNotDelayAStop(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := ignoringDeadlines(nil)
		o.append("t", "k", "stuck1")
		f := o.one(forwarder.Sink{Sink: s, Timeout: 4 * time.Second, Retry: later}, stopsWithin(10*time.Second))
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, f.Stats()[0].Abandoned)
		began := time.Now()
		f.end()
		require.Less(t, time.Since(began), time.Second, "the delivery is settled")
		require.Equal(t, []string{"sink retrying stuck1"}, o.parked())

		o.append("t", "", "stuck2")
		f = o.one(forwarder.Sink{Sink: s, Timeout: time.Hour}, stopsWithin(10*time.Second))
		f.flush()
		began = time.Now()
		f.end()
		require.InDelta(t, 12, time.Since(began).Seconds(), 0.5, "the shutdown timeout, and two seconds for the sink to notice it")
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"stuck1", "stuck2"}, s.given())
	})
}

func TestABatchThatIgnoresItsDeadlineIsRetriedInOrder(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := &batches{limits: sinks.BatchLimits{Size: 10, Wait: time.Second, Ordered: true}}
		var stuck atomic.Bool
		b.whole = func(_ context.Context, batch []*notification.Delivery) []sinks.Result {
			if stuck.CompareAndSwap(false, true) {
				time.Sleep(5 * time.Minute)
			}
			return make([]sinks.Result, len(batch))
		}
		o.append("t", "k", "k1", "k2", "k3")
		o.append("t", "m", "m1", "m2")
		f := o.one(forwarder.Sink{Sink: b, Timeout: 4 * time.Second})
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, f.Stats()[0].Abandoned)
		pass(time.Minute)
		given := b.given()
		require.Equal(t, []string{"k1", "k2", "k3", "m1", "m2"}, given[0])
		again := slices.Concat(given[1:]...)
		require.ElementsMatch(t, []string{"k1/2", "k2", "k3", "m1/2", "m2"}, again, "only the heads of keys have spent an attempt")
		for _, key := range []string{"k", "m"} {
			require.IsIncreasing(t, slices.DeleteFunc(slices.Clone(again), func(id string) bool { return id[:1] != key }))
		}
		time.Sleep(time.Hour)
		require.Equal(t, int64(5), f.Stats()[0].Delivered)
		require.Empty(t, o.parked())
	})
}

func TestAWarningSaysThatAbandonedCallsUseAllSlots(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := ignoringDeadlines(nil)
		o.append("t", "", "stuck1")
		var log lines
		f := o.one(forwarder.Sink{Sink: s, Timeout: 4 * time.Second, Retry: later, Parallelism: forwarder.Parallelism{Threshold: 2}},
			log.logging)
		time.Sleep(20 * time.Second)
		const all = "all slots of the sink"
		require.Len(t, log.with("the sink ignores its deadline"), 1)
		require.Empty(t, log.with(all))
		f.publish("t", "", "stuck2", "good")
		pass(20 * time.Second)
		require.Len(t, log.with(all), 1)
		require.Equal(t, 2, f.Stats()[0].Abandoned)
		pass(10 * time.Minute)
		require.Equal(t, int64(1), f.Stats()[0].Delivered, "slots are used again once their calls return")
	})
}
