package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/sinks"
)

func TestATransientFailureIsRetriedAndItsKeyWaitsInOrder(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: fails(errors.New("come back later"), 2, "a1")}
		o.append("t", "a", "a1", "a2")
		o.append("t", "b", "b1")
		f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: time.Minute}})
		f.flush()
		require.ElementsMatch(t, []string{"a1", "b1"}, s.given())
		require.Equal(t, []string{"sink retrying a1", "sink blocked a2"}, o.parked())

		f.publish("t", "a", "a3")
		require.Empty(t, s.given())
		require.Equal(t, []string{"sink retrying a1", "sink blocked a2", "sink blocked a3"}, o.parked())

		pass(75 * time.Second)
		require.Equal(t, []string{"a1"}, s.given(), "the second attempt, after about a minute")
		time.Sleep(time.Minute)
		require.Empty(t, s.given(), "the third attempt comes after about two minutes")
		pass(90 * time.Second)
		require.Equal(t, []string{"a1", "a2", "a3"}, s.given())
		require.Equal(t, 3, s.attempts["a1"])
		require.Equal(t, 1, s.attempts["a2"], "waiting spends no attempt")
		require.Empty(t, o.parked())

		f.publish("t", "a", "a4")
		require.Equal(t, []string{"a4"}, s.given(), "the key is free again")
	})
}

func TestManyFollowersAreReleasedInOrder(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		ids := numbered("", 730) // several times as many as are released at once
		s := &script{answer: fails(errors.New("not now"), 1, ids[0], ids[250])}
		o.append("t", "k", ids[:500]...)
		f := o.one(forwarder.Sink{Sink: s})
		f.flush()
		require.Equal(t, ids[:1], s.given())
		o.append("t", "k", ids[500:]...)
		pass(time.Hour)
		want := append([]string{}, ids[:251]...)
		want = append(want, ids[250:]...) // again
		require.Equal(t, want, s.given())
		require.Empty(t, o.parked())
	})
}

func TestAfterTheLastAttemptTheKeyContinues(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: fails(errors.New("never"), always, "a1")}
		o.append("t", "a", "a1", "a2")
		o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{MaxAttempts: 3}})
		pass(time.Hour)
		require.Equal(t, []string{"a1", "a1", "a1", "a2"}, s.given())
		require.Equal(t, []string{"sink dead a1"}, o.parked())
		require.Equal(t, "never", o.parkedOf("a1").LastError)
		require.Equal(t, 3, o.spent())
	})
}

func TestAPermanentFailureIsDeadAtOnce(t *testing.T) {
	for _, rule := range []forwarder.OnDead{forwarder.OnDeadContinue, forwarder.OnDeadHalt} {
		t.Run(string(rule), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				s := &script{answer: fails(sinks.Permanent(errors.New("no such customer")), always, "a1")}
				o.append("t", "a", "a1", "a2")
				o.append("t", "b", "b1")
				f := o.one(forwarder.Sink{Sink: s, OnDead: rule})
				pass(time.Hour)
				if rule == forwarder.OnDeadContinue {
					require.ElementsMatch(t, []string{"a1", "b1", "a2"}, s.given())
					require.Equal(t, []string{"sink dead a1"}, o.parked())
				} else {
					require.ElementsMatch(t, []string{"a1", "b1"}, s.given())
					require.Equal(t, []string{"sink dead a1", "sink blocked a2"}, o.parked())
				}
				f.end()

				// Another forwarder finds the key in the same state.
				f = o.one(forwarder.Sink{Sink: s, OnDead: forwarder.OnDeadContinue})
				f.flush()
				if rule == forwarder.OnDeadHalt {
					require.Equal(t, []string{"a2"}, s.given(), "a dead delivery no longer halts its key")
				}
				require.Equal(t, []string{"sink dead a1"}, o.parked())
			})
		})
	}
}

func TestAnUnavailableSinkWaitsWithoutSpendingAttempts(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var up atomic.Bool
		s, other := &script{answer: either(
			refuses(sinks.Unavailable(errors.New("connection refused")), func(*notification.Delivery) bool { return !up.Load() }), takes(time.Millisecond),
		)}, &script{}
		o.start(map[string]forwarder.Sink{"down": {Sink: s}, "up": {Sink: other}}, route.Routes{"*": route.To("down", "up")})
		o.append("t", "", numbered("", 100)...)
		pass(time.Minute)
		require.Empty(t, o.parked())
		require.Len(t, other.given(), 100, "another sink is not affected")
		require.Less(t, len(s.given()), 16+60, "it only gets probes")
		s.mostAtOnce()

		time.Sleep(time.Minute)
		require.Equal(t, 1, s.mostAtOnce(), "one probe at a time")
		up.Store(true)
		pass(10 * time.Second)
		require.Equal(t, 16, s.mostAtOnce(), "in parallel again")
		require.Subset(t, s.given(), numbered("", 100))
		for _, id := range numbered("", 100) {
			require.Equal(t, 1, s.attempts[id], "no attempt was spent on %s", id)
		}
	})
}

func TestAThrottledSinkWaitsUntilItsTime(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		until := time.Now().Add(10 * time.Minute)
		s := &script{answer: failsUntil(until, sinks.Throttled(until, errors.New("429")))}
		o.one(forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: 4}})
		o.append("t", "", numbered("", 50)...)
		pass(9 * time.Minute)
		require.LessOrEqual(t, len(s.given()), 4, "only the deliveries in flight when the first one was throttled")
		require.Empty(t, o.parked())
		pass(2 * time.Minute)
		require.ElementsMatch(t, numbered("", 50), s.given())
		require.Equal(t, 1, s.attempts["0000"])
	})
}

func TestAPanicIsAFailedAttemptOfItsDeliveryOnly(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		s.answer = func(_ context.Context, d *notification.Delivery) error {
			if d.ID == "bad" && d.Attempt == 1 {
				panic("index out of range")
			}
			return nil
		}
		o.append("t", "", "bad", "good")
		f := o.one(forwarder.Sink{Sink: &s})
		f.flush()
		require.Equal(t, []string{"sink retrying bad"}, o.parked())
		lastError := o.parkedOf("bad").LastError
		require.Contains(t, lastError, "index out of range")
		require.Contains(t, lastError, "failures_test.go", "with a stack trace")
		pass(time.Minute)
		require.Equal(t, 2, s.attempts["bad"])
		require.Empty(t, o.parked())
	})
}

func TestADeliveryPastItsTimeoutIsAFailedAttempt(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: hangs("a")}
		o.append("t", "", "a")
		f := o.one(forwarder.Sink{Sink: s, Timeout: 10 * time.Second})
		f.flush()
		require.Empty(t, o.parked())
		pass(11 * time.Second)
		require.Equal(t, []string{"sink retrying a"}, o.parked())
		s.mended.Store(true)
		pass(time.Minute)
		require.Empty(t, o.parked())
	})
}

func TestADeliveryIsRetriedUntilItsPausesReachTheMaximumAge(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := down(errors.New("500"))
		f := o.one(forwarder.Sink{Sink: s, Breaker: forwarder.Breaker{Off: true}, Retry: forwarder.Retry{Initial: time.Minute, Max: time.Minute, MaxAge: 9*time.Minute + 30*time.Second}})
		f.publish("t", "k", "a1", "a2")
		pass(11 * time.Minute)
		require.Equal(t, 10, len(slices.DeleteFunc(s.given(), func(id string) bool { return id != "a1" })))
		require.Equal(t, "sink dead a1", o.parked()[0], "another pause would exceed the maximum age")
		f.flush()
		require.Equal(t, []string{"sink dead a1", "sink retrying a2"}, o.parked(), "what waited behind it has all of its time")
	})
}

func TestADeliveryFollowsAScheduleOfPauses(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := down(errors.New("500"))
		f := o.one(forwarder.Sink{Sink: s, Breaker: forwarder.Breaker{Off: true}, Retry: forwarder.Retry{Pauses: []time.Duration{10 * time.Second, 10 * time.Minute, time.Hour}}})
		f.publish("t", "", "a")
		for i, wait := range []time.Duration{time.Second, 12 * time.Second, 12 * time.Minute} { // each longer than its pause can be
			pass(wait)
			require.Len(t, s.given(), 1, "attempt %d", i+1)
			require.Equal(t, []string{"sink retrying a"}, o.parked())
		}
		f.adjust(func(s *forwarder.Sink) {
			s.Retry.Pauses[2] = 2 * time.Hour
			s.Retry.Types = map[string]forwarder.Retry{"other": {Pauses: []time.Duration{time.Second}}, "doubling": {MaxAttempts: 2}}
		})
		f.publish("other", "", "b")
		f.publish("doubling", "", "c")
		pass(5 * time.Second)
		require.Equal(t, []string{"sink retrying a", "sink dead b", "sink dead c"}, o.parked())
		require.ErrorContains(t, f.Adjust("sink", func(s *forwarder.Sink) { s.Retry.MaxAttempts = 3 }), "sinks.sink.retry.pauses excludes max_attempts")
		s.given()
		pass(73 * time.Minute) // its pause was chosen before the change
		require.Equal(t, []string{"a"}, s.given())
		require.Equal(t, "sink dead a", o.parked()[0])
	})
}

func TestAScheduledDeliveryHasAllOfItsRetries(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := down(errors.New("500"))
		o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: time.Minute, Max: time.Minute, MaxAge: 3*time.Minute + 30*time.Second}})
		o.schedule("t", "", "a", time.Now().Add(time.Hour))
		pass(70 * time.Minute)
		require.Equal(t, []string{"a", "a", "a", "a"}, s.given())
		require.Equal(t, []string{"sink dead a"}, o.parked())
	})
}

func TestALateDeliveryIsAttemptedAtAnyAge(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		o.append("t", "", "a")
		time.Sleep(48 * time.Hour)
		var s script
		f := o.one(forwarder.Sink{Sink: &s, Retry: forwarder.Retry{MaxAge: time.Minute}})
		f.flush()
		require.Equal(t, []string{"a"}, s.given())
		require.Empty(t, o.parked())
	})
}

// unknownTo is a sink of a process that does not yet know a type.
func unknownTo(typ string) *script {
	return &script{answer: refuses(sinks.Unknown(errors.New("type is not registered: "+typ)), func(d *notification.Delivery) bool { return d.Type == typ })}
}

func TestAnUnknownTypeIsRetriedWithoutSpendingAttempts(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := unknownTo("new")
		o.append("new", "k", "a")
		o.append("old", "k", "b")
		o.append("old", "", "c")
		f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{MaxAttempts: 2, Initial: time.Second}})
		pass(time.Hour)
		given := s.given()
		require.ElementsMatch(t, []string{"a", "c"}, given[:2], "b waits behind a, which has the same key")
		require.Greater(t, len(given), 60, "a minute is the longest pause")
		require.Less(t, len(given), 100, "and the pauses grow")
		require.Equal(t, []string{"sink retrying a", "sink blocked b"}, o.parked())
		require.Equal(t, 1, s.attempts["a"])
		require.Zero(t, o.spent())
		require.Zero(t, f.Stats()[0].Dead)
		f.end()

		next := &script{} // the sink of the process that replaces the first
		o.one(forwarder.Sink{Sink: next})
		pass(2 * time.Minute)
		require.Equal(t, []string{"a", "b"}, next.given())
		require.Equal(t, 1, next.attempts["a"])
		require.Empty(t, o.parked())
	})
}

func TestAnUnknownTypeIsDeadAfterTheMaximumTime(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := unknownTo("new")
		o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: 4 * time.Hour}}, polled(time.Hour))
		o.append("new", "k", "a")
		o.append("old", "k", "b")
		pass(71 * time.Hour)
		require.Equal(t, []string{"sink retrying a", "sink blocked b"}, o.parked())
		pass(6 * time.Hour)
		require.Equal(t, []string{"sink dead a"}, o.parked(), "its key continues")
		require.Contains(t, o.parkedOf("a").LastError, forwarder.ErrUnknownTooLong.Error()+" (72h0m0s): unknown: type is not registered: new")
	})
}

// A store of large bodies is down for hours, while small ones are delivered.
func TestWhatOnlySomeDeliveriesNeedSpendsNoAttemptsAndStopsNoSink(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		end := time.Now().Add(5 * time.Hour)
		s := &script{answer: refuses(sinks.Apart(errors.New("the store is down")), func(d *notification.Delivery) bool {
			return d.Type == "large" && time.Now().Before(end)
		})}
		f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{MaxAttempts: 2, Initial: time.Second}})
		o.append("large", "k", "a")
		o.append("small", "k", "b")
		o.append("small", "", "c")
		for i := range 4 {
			o.append("large", "", fmt.Sprint("large ", i))
			o.append("small", "", fmt.Sprint("small ", i))
			pass(time.Hour)
			require.Contains(t, s.given(), fmt.Sprint("small ", i))
		}
		require.Zero(t, o.spent())
		pass(2 * time.Hour)
		require.Empty(t, o.parked())
		f.end()
		require.Equal(t, 1, s.attempts["a"])
	})
}

func TestASinkWaitsIfAllDeliveriesNeedWhatIsDown(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		end := time.Now().Add(3 * time.Hour)
		s := &script{answer: failsUntil(end, sinks.Apart(errors.New("the store is down")))}
		o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{MaxAttempts: 2, Initial: time.Second}})
		for i := range 200 {
			o.append("large", fmt.Sprint(i), fmt.Sprint(i))
		}
		pass(2 * time.Hour)
		require.Less(t, len(o.parked()), 100, "the others wait in the log")
		require.Zero(t, o.spent())
		pass(2 * time.Hour)
		require.Empty(t, o.parked())
		delivered := make(map[string]bool)
		for _, id := range s.given() {
			delivered[id] = true
		}
		require.Equal(t, 200, len(delivered)) //nolint:testifylint // it would print all of them
	})
}

func TestOtherFailuresOfATypeThatWasUnknownSpendAttempts(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: either(failsUntil(time.Now().Add(time.Hour), sinks.Unknown(errors.New("unknown type"))), fails(errors.New("500"), always))}
		o.one(forwarder.Sink{Sink: s, Breaker: forwarder.Breaker{Off: true}, Retry: forwarder.Retry{MaxAttempts: 3, Initial: time.Second}})
		o.append("new", "", "a")
		pass(2 * time.Hour)
		require.Equal(t, []string{"sink dead a"}, o.parked())
		require.Equal(t, 3, o.spent())
	})
}
