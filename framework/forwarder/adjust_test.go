package forwarder_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/sinks"
)

// adjust changes the settings of the usual sink.
func (e *engine) adjust(change func(s *forwarder.Sink)) {
	e.t.Helper()
	require.NoError(e.t, e.Adjust("sink", change))
}

// seconds is a sink that takes a second for each delivery.
func seconds() *script {
	return &script{answer: func(context.Context, *notification.Delivery) error {
		time.Sleep(time.Second)
		return nil
	}}
}

func TestTheThresholdIsAdjustedWhileDeliveriesAreInFlight(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := seconds()
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
		time.Sleep(time.Second)
		synctest.Wait()
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
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, forwarder.DefaultThreshold, s.mostAtOnce(), "zero is the default")
		require.ElementsMatch(t, numbered("", 300), s.given())
		f.end()
	})
}

func TestRateTimeoutRetryAndBreakerAreAdjusted(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		var fails, hangs bool
		s.answer = func(ctx context.Context, d *notification.Delivery) error {
			s.mu.Lock()
			fail, hang := fails && d.Attempt == 1, hangs
			s.mu.Unlock()
			if hang {
				<-ctx.Done()
				return ctx.Err()
			}
			if fail {
				return errors.New("500")
			}
			return nil
		}
		set := func(fail, hang bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			fails, hangs = fail, hang
		}
		f := o.one(forwarder.Sink{Sink: &s, Rate: forwarder.Rate{Events: 1, Per: time.Second, Burst: 1}, Breaker: forwarder.Breaker{Off: true}})
		o.append("t", "", numbered("rate", 1000)...)
		time.Sleep(10*time.Second + 500*time.Millisecond)
		synctest.Wait()
		given := len(s.given())
		require.Equal(t, 11, given)
		f.adjust(func(s *forwarder.Sink) { s.Rate = forwarder.Rate{Events: 10, Per: time.Second, Burst: 1} })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		more := len(s.given())
		require.InDelta(t, 101, more, 1)
		f.adjust(func(s *forwarder.Sink) { s.Rate = forwarder.Rate{} })
		synctest.Wait()
		require.Len(t, s.given(), 1000-given-more)

		f.adjust(func(s *forwarder.Sink) { s.Retry.Initial = time.Hour; s.Retry.MaxAttempts = 1; s.Retry.Max = time.Hour })
		set(true, false)
		o.append("t", "", "dies")
		f.flush()
		require.Equal(t, []string{"sink dead dies"}, o.parked())
		o.exec(`DELETE FROM outbox_parked`)

		f.adjust(func(s *forwarder.Sink) {
			s.Retry = forwarder.Retry{Types: map[string]forwarder.Retry{"other": {MaxAttempts: 1}}}
		})
		o.append("t", "", "retried")
		o.append("other", "", "dies too")
		f.flush()
		require.Equal(t, []string{"sink retrying retried", "sink dead dies too"}, o.parked())
		o.exec(`DELETE FROM outbox_parked`)

		f.adjust(func(s *forwarder.Sink) { s.Timeout = 4 * time.Second; s.Retry = later })
		set(false, true)
		o.append("t", "", "hangs")
		f.flush()
		time.Sleep(4500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{"sink retrying hangs"}, o.parked())
		o.exec(`DELETE FROM outbox_parked`)

		set(true, false)
		f.adjust(func(s *forwarder.Sink) {
			s.Breaker = forwarder.Breaker{MaxPause: time.Minute}
			s.Parallelism.Threshold = 1
		})
		o.append("t", "", numbered("", 50)...)
		f.flush()
		require.Len(t, o.parked(), toOpen)
		f.adjust(func(s *forwarder.Sink) { s.Breaker.Off = true })
		f.flush()
		require.Len(t, o.parked(), 50, "a breaker that is off stops no delivery")
		f.end()
	})
}

func TestAThrottledSinkStillWaitsAfterItsBreakerIsSwitchedOff(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		until := time.Now().Add(10 * time.Minute)
		var s script
		s.answer = func(context.Context, *notification.Delivery) error {
			if time.Now().Before(until) {
				return sinks.Throttled(until, errors.New("429"))
			}
			return nil
		}
		f := o.one(forwarder.Sink{Sink: &s})
		o.append("t", "", "a")
		f.flush()
		require.Len(t, s.given(), 1)
		f.adjust(func(s *forwarder.Sink) { s.Breaker.Off = true })
		time.Sleep(9 * time.Minute)
		require.Empty(t, s.given())
		time.Sleep(2 * time.Minute)
		require.Len(t, s.given(), 1)
		f.end()
	})
}

func TestAChangeOfFairnessAppliesToWaitingDeliveries(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &tenants{}
		o.appendOf("big", "", 400)
		o.appendOf("small", "", 40)
		f := o.one(forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: 4}})
		time.Sleep(10*time.Second + 500*time.Millisecond)
		require.Zero(t, s.of("small"), "these are the last in the log")
		f.adjust(func(s *forwarder.Sink) { s.Fairness = "tenant" })
		time.Sleep(10 * time.Second)
		require.InDelta(t, 20, s.of("small"), 3)
		f.adjust(func(s *forwarder.Sink) { s.Fairness = "" })
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Equal(t, 40, s.of("small"))
		require.Equal(t, 400, s.of("big"))
		f.end()
	})
}

func TestAnInvalidAdjustmentChangesNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := seconds()
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
		o.append("t", "", numbered("", 20)...)
		f.flush()
		require.Equal(t, forwarder.DefaultThreshold, s.mostAtOnce())
		f.end()
	})
}

func TestAForwarderIsAdjustedBeforeItRuns(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := seconds()
		f, err := forwarder.New(forwarder.Config{
			Store: o.store, Sinks: map[string]forwarder.Sink{"sink": {Sink: s}}, Routes: route.Routes{"*": route.To("sink")},
			Retention: forwarder.KeepForever, InboxRetention: forwarder.KeepForever, Poll: 10 * time.Second, Lease: time.Hour,
		})
		require.NoError(t, err)
		require.NoError(t, f.Adjust("sink", func(s *forwarder.Sink) {
			s.Parallelism.Threshold, s.Rate = 3, forwarder.Rate{Events: 100, Per: time.Second}
		}))
		o.append("t", "", numbered("", 20)...)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Run(ctx) }()
		time.Sleep(time.Minute)
		require.Equal(t, 3, s.mostAtOnce())
		require.Len(t, s.given(), 20)
		stop()
		require.NoError(t, <-ended)
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
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, int64(3000), f.Stats()[0].Delivered)
		require.Equal(t, ids, slices.Compact(slices.Sorted(slices.Values(s.given()))))
		require.Zero(t, s.overlaps)
		require.Zero(t, f.Stats()[0].Pending)
		require.Empty(t, o.parked())
		f.end()
	})
}
