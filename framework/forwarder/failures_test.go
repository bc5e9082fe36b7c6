package forwarder_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/sinks"
)

func TestATransientFailureIsRetriedAndItsKeyWaitsInOrder(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		s.answer = func(_ context.Context, d *notification.Delivery) error {
			if d.ID == "a1" && d.Attempt < 3 {
				return errors.New("come back later")
			}
			return nil
		}
		o.append("t", "a", "a1", "a2")
		o.append("t", "b", "b1")
		f := o.one(forwarder.Sink{Sink: &s, Retry: forwarder.Retry{Initial: time.Minute}})
		f.flush()
		require.ElementsMatch(t, []string{"a1", "b1"}, s.given())
		require.Equal(t, []string{"sink retrying a1", "sink blocked a2"}, o.parked())

		o.append("t", "a", "a3")
		f.flush()
		require.Empty(t, s.given())
		require.Equal(t, []string{"sink retrying a1", "sink blocked a2", "sink blocked a3"}, o.parked())

		time.Sleep(75 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"a1"}, s.given(), "the second attempt, after about a minute")
		time.Sleep(time.Minute)
		require.Empty(t, s.given(), "the third attempt comes after about two minutes")
		time.Sleep(90 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"a1", "a2", "a3"}, s.given())
		require.Equal(t, 3, s.attempts["a1"])
		require.Equal(t, 1, s.attempts["a2"], "waiting spends no attempt")
		require.Empty(t, o.parked())

		o.append("t", "a", "a4")
		f.flush()
		require.Equal(t, []string{"a4"}, s.given(), "the key is free again")
		f.end()
	})
}

func TestManyFollowersAreReleasedInOrder(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		ids := numbered("", 730) // several times as many as are released at once
		var s script
		s.answer = func(_ context.Context, d *notification.Delivery) error {
			if d.ID == ids[0] && d.Attempt == 1 || d.ID == ids[250] && d.Attempt == 1 {
				return errors.New("not now")
			}
			return nil
		}
		o.append("t", "k", ids[:500]...)
		f := o.one(forwarder.Sink{Sink: &s})
		f.flush()
		require.Equal(t, ids[:1], s.given())
		o.append("t", "k", ids[500:]...)
		time.Sleep(time.Hour)
		synctest.Wait()
		want := append([]string{}, ids[:251]...)
		want = append(want, ids[250:]...) // again
		require.Equal(t, want, s.given())
		require.Empty(t, o.parked())
		f.end()
	})
}

func TestAfterTheLastAttemptTheKeyContinues(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		s.answer = func(_ context.Context, d *notification.Delivery) error {
			if d.ID == "a1" {
				return errors.New("never")
			}
			return nil
		}
		o.append("t", "a", "a1", "a2")
		f := o.one(forwarder.Sink{Sink: &s, Retry: forwarder.Retry{MaxAttempts: 3}})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"a1", "a1", "a1", "a2"}, s.given())
		require.Equal(t, []string{"sink dead a1"}, o.parked())
		require.Equal(t, "never", value[string](o, `SELECT last_error FROM outbox_parked`))
		require.Equal(t, 3, value[int](o, `SELECT attempt FROM outbox_parked`))
		f.end()
	})
}

func TestAPermanentFailureIsDeadAtOnce(t *testing.T) {
	for _, rule := range []forwarder.OnDead{forwarder.OnDeadContinue, forwarder.OnDeadHalt} {
		t.Run(string(rule), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				var s script
				s.answer = func(_ context.Context, d *notification.Delivery) error {
					if d.ID == "a1" {
						return sinks.Permanent(errors.New("no such customer"))
					}
					return nil
				}
				o.append("t", "a", "a1", "a2")
				o.append("t", "b", "b1")
				f := o.one(forwarder.Sink{Sink: &s, OnDead: rule})
				time.Sleep(time.Hour)
				synctest.Wait()
				if rule == forwarder.OnDeadContinue {
					require.ElementsMatch(t, []string{"a1", "b1", "a2"}, s.given())
					require.Equal(t, []string{"sink dead a1"}, o.parked())
				} else {
					require.ElementsMatch(t, []string{"a1", "b1"}, s.given())
					require.Equal(t, []string{"sink dead a1", "sink blocked a2"}, o.parked())
				}
				f.end()

				// Another forwarder finds the key in the same state.
				f = o.one(forwarder.Sink{Sink: &s, OnDead: forwarder.OnDeadContinue})
				f.flush()
				if rule == forwarder.OnDeadHalt {
					require.Equal(t, []string{"a2"}, s.given(), "a dead delivery no longer halts its key")
				}
				require.Equal(t, []string{"sink dead a1"}, o.parked())
				f.end()
			})
		})
	}
}

func TestAnUnavailableSinkWaitsWithoutSpendingAttempts(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var down atomic.Bool
		down.Store(true)
		var s, other script
		s.answer = func(context.Context, *notification.Delivery) error {
			if down.Load() {
				return sinks.Unavailable(errors.New("connection refused"))
			}
			time.Sleep(time.Millisecond)
			return nil
		}
		f := o.start(map[string]forwarder.Sink{"down": {Sink: &s}, "up": {Sink: &other}}, route.Routes{"*": route.To("down", "up")})
		o.append("t", "", numbered("", 100)...)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, o.parked())
		require.Len(t, other.given(), 100, "another sink is not affected")
		require.Less(t, len(s.given()), 16+60, "it only gets probes")
		s.mostAtOnce()

		time.Sleep(time.Minute)
		require.Equal(t, 1, s.mostAtOnce(), "one probe at a time")
		down.Store(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Subset(t, s.given(), numbered("", 100))
		for _, id := range numbered("", 100) {
			require.Equal(t, 1, s.attempts[id], "no attempt was spent on %s", id)
		}
		require.Equal(t, 16, s.mostAtOnce(), "in parallel again")
		f.end()
	})
}

func TestAThrottledSinkWaitsUntilItsTime(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		until := time.Now().Add(10 * time.Minute)
		var s script
		s.answer = func(context.Context, *notification.Delivery) error {
			if time.Now().Before(until) {
				return sinks.Throttled(until, errors.New("429"))
			}
			return nil
		}
		f := o.one(forwarder.Sink{Sink: &s, Parallelism: forwarder.Parallelism{Threshold: 4}})
		o.append("t", "", numbered("", 50)...)
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		require.LessOrEqual(t, len(s.given()), 4, "only the deliveries in flight when the first one was throttled")
		require.Empty(t, o.parked())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.ElementsMatch(t, numbered("", 50), s.given())
		require.Equal(t, 1, s.attempts["0000"])
		f.end()
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
		lastError := value[string](o, `SELECT last_error FROM outbox_parked`)
		require.Contains(t, lastError, "index out of range")
		require.Contains(t, lastError, "failures_test.go", "with a stack trace")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 2, s.attempts["bad"])
		require.Empty(t, o.parked())
		f.end()
	})
}

func TestADeliveryPastItsTimeoutIsAFailedAttempt(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		s.answer = func(ctx context.Context, d *notification.Delivery) error {
			if d.Attempt == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		o.append("t", "", "a")
		f := o.one(forwarder.Sink{Sink: &s, Timeout: 10 * time.Second})
		f.flush()
		require.Empty(t, o.parked())
		time.Sleep(11 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"sink retrying a"}, o.parked())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, o.parked())
		f.end()
	})
}
