package forwarder_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
)

// adjust changes the settings of the usual sink.
func (e *engine) adjust(change func(s *forwarder.Sink)) {
	e.t.Helper()
	require.NoError(e.t, e.Adjust("sink", change))
}

func TestTheThresholdIsAdjustedWhileDeliveriesAreInFlight(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: takes(time.Second)}
		o.append("t", "", numbered("", 300)...)
		f := o.one(forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: 4}})
		time.Sleep(3*time.Second + 500*time.Millisecond)
		require.Equal(t, 4, s.mostAtOnce())

		f.adjust(func(s *forwarder.Sink) { s.Parallelism.Threshold = 20 })
		synctest.Wait()
		require.Equal(t, 20, f.Stats()[0].InFlight, "at once")

		f.adjust(func(s *forwarder.Sink) { s.Parallelism.Threshold = 2 })
		synctest.Wait()
		require.Equal(t, 20, f.Stats()[0].InFlight, "deliveries in flight continue")
		pass(time.Second)
		require.Equal(t, 2, f.Stats()[0].InFlight)
		s.mostAtOnce()
		time.Sleep(10 * time.Second)
		require.Equal(t, 2, s.mostAtOnce())

		f.adjust(func(s *forwarder.Sink) {
			s.Parallelism = forwarder.Parallelism{Threshold: 8, Above: forwarder.AboveSequential}
		})
		time.Sleep(5 * time.Second)
		s.mostAtOnce()
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, s.mostAtOnce(), "more than 8 are pending")

		f.adjust(func(s *forwarder.Sink) { s.Parallelism = forwarder.Parallelism{} })
		pass(time.Minute)
		require.Equal(t, forwarder.DefaultThreshold, s.mostAtOnce(), "zero is the default")
		require.ElementsMatch(t, numbered("", 300), s.given())
	})
}

func TestRateTimeoutRetryAndBreakerAreAdjusted(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var failing, hanging atomic.Bool
		s := &script{answer: func(ctx context.Context, d *notification.Delivery) error {
			if hanging.Load() {
				return takesTime(ctx, time.Hour)
			}
			if failing.Load() && d.Attempt == 1 {
				return errors.New("500")
			}
			return nil
		}}
		o.append("t", "", numbered("rate", 1000)...) // before the first look
		f := o.one(forwarder.Sink{Sink: s, Rate: forwarder.Rate{Events: 1, Per: time.Second, Burst: 1}, Breaker: forwarder.Breaker{Off: true}})
		pass(10*time.Second + 500*time.Millisecond)
		given := len(s.given())
		require.Equal(t, 11, given)
		f.adjust(func(s *forwarder.Sink) { s.Rate = forwarder.Rate{Events: 10, Per: time.Second, Burst: 1} })
		pass(10 * time.Second)
		more := len(s.given())
		require.InDelta(t, 101, more, 1)
		f.adjust(func(s *forwarder.Sink) { s.Rate = forwarder.Rate{} })
		synctest.Wait()
		require.Len(t, s.given(), 1000-given-more)

		f.adjust(func(s *forwarder.Sink) { s.Retry.Initial = time.Hour; s.Retry.MaxAttempts = 1; s.Retry.Max = time.Hour })
		failing.Store(true)
		f.publish("t", "", "dies")
		require.Equal(t, []string{"sink dead dies"}, o.parked())
		o.unpark(store.StateDead)

		f.adjust(func(s *forwarder.Sink) {
			s.Retry = forwarder.Retry{Types: map[string]forwarder.Retry{"other": {MaxAttempts: 1}}}
		})
		o.append("t", "", "retried")
		f.publish("other", "", "dies too")
		require.Equal(t, []string{"sink retrying retried", "sink dead dies too"}, o.parked())
		o.unpark(store.StateDead)
		o.unpark(store.StateRetrying)

		f.adjust(func(s *forwarder.Sink) { s.Timeout = 4 * time.Second; s.Retry = later })
		hanging.Store(true)
		f.publish("t", "", "hangs")
		pass(4500 * time.Millisecond)
		require.Equal(t, []string{"sink retrying hangs"}, o.parked())
		o.unpark(store.StateRetrying)

		hanging.Store(false)
		f.adjust(func(s *forwarder.Sink) {
			s.Breaker = forwarder.Breaker{MaxPause: time.Minute}
			s.Parallelism.Threshold = 1
		})
		f.publish("t", "", numbered("", 50)...)
		require.Len(t, o.parked(), toOpen)
		f.adjust(func(s *forwarder.Sink) { s.Breaker.Off = true })
		f.flush()
		require.Len(t, o.parked(), 50, "a breaker that is off stops no delivery")
	})
}

func TestAChangeOfFairnessAppliesToWaitingDeliveries(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := newTenants(nil)
		o.appendOf("big", "", 400)
		o.appendOf("small", "", 40)
		f := o.one(forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: 4}})
		time.Sleep(10*time.Second + 500*time.Millisecond)
		require.Zero(t, s.of("small"), "these are the last in the log")
		f.adjust(func(s *forwarder.Sink) { s.Fairness = "tenant" })
		time.Sleep(10 * time.Second)
		require.InDelta(t, 20, s.of("small"), 3)
		f.adjust(func(s *forwarder.Sink) { s.Fairness = "" })
		pass(10 * time.Minute)
		require.Equal(t, 40, s.of("small"))
		require.Equal(t, 400, s.of("big"))
	})
}

func TestAnInvalidAdjustmentChangesNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: takes(time.Second)}
		types := map[string]forwarder.Retry{"t": {MaxAttempts: 7}}
		f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Types: types}})
		refused := func(mistake string, change func(s *forwarder.Sink)) {
			t.Helper()
			err := f.Adjust("sink", func(s *forwarder.Sink) {
				s.Parallelism.Threshold, s.Retry.MaxAttempts, s.Timeout = 1, 2, time.Minute
				change(s)
			})
			require.ErrorIs(t, err, forwarder.ErrConfig)
			require.ErrorContains(t, err, mistake)
		}
		refused("sinks.sink.on_dead cannot be changed", func(s *forwarder.Sink) { s.OnDead = forwarder.OnDeadHalt })
		refused("sinks.sink.parallelism.threshold is -1", func(s *forwarder.Sink) { s.Parallelism.Threshold = -1 })
		refused("sinks.sink.rate is", func(s *forwarder.Sink) { s.Rate.Events = -1 })
		refused("sinks.sink.breaker.max_pause is 1ns", func(s *forwarder.Sink) { s.Breaker.MaxPause = 1 })
		refused("sinks.sink.timeout is -1ns", func(s *forwarder.Sink) { s.Timeout = -1 })
		refused("sinks.sink: the sink is missing", func(s *forwarder.Sink) { s.Sink = nil })
		refused("sinks.sink.retry.types.t.max_attempts is -1", func(s *forwarder.Sink) { s.Retry.Types["t"] = forwarder.Retry{MaxAttempts: -1} })
		for _, unknown := range []string{"nowhere", "_unrouted", ""} {
			err := f.Adjust(unknown, func(*forwarder.Sink) { t.Error("the replaced function is not called") })
			require.ErrorIs(t, err, forwarder.ErrConfig)
		}
		f.adjust(func(s *forwarder.Sink) {
			require.Equal(t, forwarder.DefaultThreshold, s.Parallelism.Threshold)
			require.Equal(t, 24*time.Hour, s.Retry.MaxAge)
			require.Equal(t, forwarder.DefaultTimeout, s.Timeout)
			require.Equal(t, 7, s.Retry.Types["t"].MaxAttempts)
		})
		require.Equal(t, 7, types["t"].MaxAttempts, "the caller's map is not shared")
		f.publish("t", "", numbered("", 20)...)
		require.Equal(t, forwarder.DefaultThreshold, s.mostAtOnce())
	})
}

func TestAForwarderIsAdjustedBeforeItRuns(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: takes(time.Second)}
		f, err := forwarder.New(o.config(map[string]forwarder.Sink{"sink": {Sink: s}}, route.Routes{"*": route.To("sink")}))
		require.NoError(t, err)
		require.NoError(t, f.Adjust("sink", func(s *forwarder.Sink) {
			s.Parallelism.Threshold, s.Rate = 3, forwarder.Rate{Events: 100, Per: time.Second}
		}))
		settings, works := f.Settings("sink")
		require.True(t, works)
		require.Equal(t, 3, settings.Parallelism.Threshold)
		require.Equal(t, forwarder.DefaultTimeout, settings.Timeout)
		_, works = f.Settings("other")
		require.False(t, works)
		o.append("t", "", numbered("", 20)...)
		launch(t, f)
		time.Sleep(time.Minute)
		require.Equal(t, 3, s.mostAtOnce())
		require.Len(t, s.given(), 20)
	})
}

func TestAdjustingUnderLoadLosesAndRepeatsNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		last := make(map[string]string)
		var s script
		s.answer = func(_ context.Context, d *notification.Delivery) error {
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
			if d.Attempt == 1 && d.Key == "" && rand.IntN(20) == 0 {
				return errors.New("500")
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if d.Key != "" {
				require.Less(t, last[d.Key], d.ID, "order of key %s", d.Key)
				last[d.Key] = d.ID
			}
			return nil
		}
		ids := numbered("", 3000)
		for chunk := range slices.Chunk(ids, 10) {
			o.append("t", []string{"", "a", "b", "c"}[rand.IntN(4)], chunk...)
		}
		f := o.one(forwarder.Sink{Sink: &s})
		var adjusting sync.WaitGroup
		for i := range 4 {
			adjusting.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), 1))
				for range 300 {
					time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
					f.adjust(func(s *forwarder.Sink) {
						s.Parallelism.Threshold = 1 + rng.IntN(30)
						s.Fairness = []string{"", "tenant"}[rng.IntN(2)]
						s.Rate = []forwarder.Rate{{}, {Events: 1000, Per: time.Second}}[rng.IntN(2)]
						s.Breaker.MaxPause = time.Duration(1+rng.IntN(10)) * time.Second
						s.Timeout = time.Duration(10+rng.IntN(10)) * time.Second
					})
				}
			})
		}
		adjusting.Wait()
		f.adjust(func(s *forwarder.Sink) { s.Parallelism.Threshold = 16 })
		pass(time.Hour)
		require.Equal(t, int64(3000), f.Stats()[0].Delivered)
		require.Equal(t, ids, slices.Compact(slices.Sorted(slices.Values(s.given()))))
		require.Zero(t, s.overlaps)
		require.Zero(t, f.Stats()[0].Pending)
		require.Empty(t, o.parked())
	})
}
