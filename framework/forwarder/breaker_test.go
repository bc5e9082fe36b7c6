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

// toOpen is how many failures of different keys open a breaker with default settings.
const toOpen = 18

// later retries after the end of a test.
var later = forwarder.Retry{Initial: 2 * time.Hour, Max: 2 * time.Hour}

func TestFailuresOfManyKeysOpenTheBreaker(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s, other := down(errors.New("500")), &script{}
		ids := numbered("", 200)
		o.append("t", "", ids...)
		f := o.start(map[string]forwarder.Sink{"sink": {Sink: s, Retry: later}, "up": {Sink: other}}, route.Routes{"*": route.To("sink", "up")})
		pass(time.Hour)
		require.Len(t, o.parked(), toOpen, "the failures before the breaker opened")
		require.Equal(t, toOpen, o.spent())
		require.Len(t, other.given(), 200, "another sink is not affected")
		require.Less(t, len(s.given()), 3600/4+40, "it only gets probes")
		s.mostAtOnce()
		time.Sleep(time.Minute)
		require.Equal(t, 1, s.mostAtOnce())

		s.mended.Store(true)
		pass(10 * time.Second)
		require.Equal(t, int64(200-toOpen), f.Stats()[0].Delivered)
		s.mu.Lock()
		for id, attempt := range s.attempts {
			require.Equal(t, 1, attempt, "no attempt was spent on %s", id)
		}
		s.mu.Unlock()
		pass(3 * time.Hour)
		require.Empty(t, o.parked())
	})
}

func TestProbesTakeTurnsAtGrowingIntervals(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := down(errors.New("500"))
		o.append("t", "", numbered("", 30)...)
		o.one(forwarder.Sink{Sink: s, Retry: later, Breaker: forwarder.Breaker{MaxPause: time.Minute}, Parallelism: alone})
		pass(time.Hour)
		given := s.given()
		require.Equal(t, numbered("", toOpen), given[:toOpen])
		require.ElementsMatch(t, numbered("", 30)[toOpen:], given[toOpen:30], "each waiting delivery once")
		require.Equal(t, given[toOpen:30], given[30:42], "the waiting deliveries, in turn")
		expected := 100 * time.Millisecond
		at := s.begun("")
		for i := toOpen; i < len(at); i++ {
			require.InEpsilon(t, expected, at[i].Sub(at[i-1]), 0.21, "pause %d", i-toOpen)
			expected = min(2*expected, time.Minute)
		}
		require.Greater(t, len(at), toOpen+50)
	})
}

func TestOnePoisonousDeliveryDoesNotKeepTheBreakerOpen(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		ids := numbered("", toOpen+3)
		var mended atomic.Bool
		s.answer = refuses(errors.New("500"), func(d *notification.Delivery) bool { return !mended.Load() || d.ID == ids[toOpen] })
		o.append("t", "", ids...)
		f := o.one(forwarder.Sink{Sink: s, Retry: later, Parallelism: alone})
		time.Sleep(time.Minute)
		mended.Store(true)
		pass(15 * time.Second)
		require.Equal(t, int64(2), f.Stats()[0].Delivered)
		require.Len(t, o.parked(), toOpen+1, "since the others succeed, its failures count")
	})
}

func TestDeliveriesInFlightWhenTheBreakerOpensDoNotCloseIt(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		s.answer = func(_ context.Context, d *notification.Delivery) error {
			if d.ID <= "0001" { // both are late, and the first one succeeds
				time.Sleep(10 * time.Second)
			}
			if d.ID == "0000" {
				return nil
			}
			return errors.New("500")
		}
		o.append("t", "", numbered("", 100)...)
		f := o.one(forwarder.Sink{Sink: s, Retry: later})
		pass(time.Minute)
		require.Equal(t, int64(1), f.Stats()[0].Delivered)
		require.Len(t, o.parked(), toOpen, "0001 is not one of them")
	})
}

// toRefuse is how many permanently refused deliveries in a row open a breaker.
const toRefuse = 10

func TestPermanentFailuresInARowOpenTheBreaker(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := down(sinks.Permanent(errors.New("400")))
		o.append("t", "", numbered("", 200)...)
		f := o.one(forwarder.Sink{Sink: s})
		f.flush()
		s.mostAtOnce()
		pass(time.Minute)
		require.Equal(t, int64(toRefuse), f.Stats()[0].Dead, "only the deliveries before the breaker opened")
		require.Equal(t, 1, s.mostAtOnce(), "it gets probes")
		s.mended.Store(true)
		pass(10 * time.Second)
		require.Len(t, o.parked(), toRefuse)
		require.Equal(t, int64(200-toRefuse), f.Stats()[0].Delivered)
	})
}

// A wrong configuration must not kill the backlog of a sink with few keys.
func TestPermanentFailuresOfFewKeysOpenTheBreaker(t *testing.T) {
	for _, keys := range []int{1, 9} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			onSQLite(t, func(t *testing.T, o *outbox) {
				s := down(sinks.Permanent(errors.New("400")))
				for i, id := range numbered("", 100) {
					o.append("t", fmt.Sprint("key", i%keys), id)
				}
				f := o.one(forwarder.Sink{Sink: s})
				pass(10 * time.Minute)
				require.Equal(t, int64(toRefuse), f.Stats()[0].Dead)
			})
		})
	}
}

// The notifications of one publisher, which the destination refuses or which fail, must not stop those of all others.
func TestProbesTryOtherNotificationsThanThoseThatFailed(t *testing.T) {
	errs := map[string]error{"refused": sinks.Permanent(errors.New("422")), "failing": errors.New("500"), "unavailable": sinks.Unavailable(errors.New("401"))}
	for name, err := range errs {
		for what, of := range map[string]struct{ typ, key, badKey string }{"type": {"good", "", ""}, "key": {"t", "good", "bad"}, "nothing": {"t", "", ""}} {
			t.Run(name+", differs in "+what, func(t *testing.T) {
				onSQLite(t, func(t *testing.T, o *outbox) {
					s := &script{answer: refuses(err, func(d *notification.Delivery) bool { return d.ID[0] == 'b' })}
					o.append("t", of.badKey, numbered("bad", 200)...)
					o.append(of.typ, of.key, numbered("good", 10)...)
					f := o.one(forwarder.Sink{Sink: s})
					pass(time.Minute)
					require.Equal(t, int64(10), f.Stats()[0].Delivered)
				})
			})
		}
	}
}

func TestNotificationsThatAreNeverSentSayNothingAboutTheDestination(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var down atomic.Bool
		s := &script{answer: either(
			refuses(sinks.Invalid(errors.New("no address")), func(d *notification.Delivery) bool { return d.ID[0] == 'b' }),
			refuses(sinks.Unavailable(errors.New("connection refused")), func(*notification.Delivery) bool { return down.Load() }),
		)}
		o.append("t", "", numbered("bad", 200)...)
		o.append("t", "", numbered("good", 10)...)
		f := o.one(forwarder.Sink{Sink: s})
		f.flush()
		require.Equal(t, int64(200), f.Stats()[0].Dead)
		require.Equal(t, int64(10), f.Stats()[0].Delivered, "it opened no breaker")

		down.Store(true)
		f.publish("t", "", numbered("more", 20)...)
		o.append("t", "", numbered("bad again", 50)...)
		pass(time.Minute)
		require.True(t, f.Figures().Sinks[0].BreakerOpen, "it closed no breaker")
	})
}

// Twelve attempts, with which deliveries once died, last half an hour.
func TestAnOutageOfHoursKillsNothingInAQuietSink(t *testing.T) {
	for _, keys := range []int{1, 2, 17} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			onSQLite(t, func(t *testing.T, o *outbox) {
				s := down(errors.New("500"))
				for i, id := range numbered("", 20) {
					o.append("t", fmt.Sprint("key", i%keys), id)
				}
				f := o.one(forwarder.Sink{Sink: s})
				pass(3 * time.Hour)
				require.Zero(t, f.Stats()[0].Dead)
				require.Equal(t, keys > 1, f.Figures().Sinks[0].BreakerOpen, "nothing has succeeded for minutes")
				s.mended.Store(true)
				pass(20 * time.Minute)
				require.Equal(t, int64(20), f.Stats()[0].Delivered)
			})
		})
	}
}

func TestTheLogCountsFailuresOfAKindAfterTheFirst(t *testing.T) {
	onSQLite(t, func(t *testing.T, o *outbox) {
		var log lines
		s := &script{answer: either(
			refuses(sinks.Invalid(errors.New("no address")), func(d *notification.Delivery) bool { return d.ID[0] == 'b' }),
			fails(errors.New("500"), always),
		)}
		o.append("t", "", numbered("bad", 200)...)
		o.append("t", "", numbered("failing", 100)...)
		o.deliver(time.Minute, forwarder.Sink{Sink: s, Retry: later, Breaker: forwarder.Breaker{Off: true}}, log.logging)
		require.Len(t, log.with(`msg="delivery is dead"`), 2)
		require.Len(t, log.with("class=invalid more=199"), 1)
		require.Len(t, log.with(`msg="delivery failed, retrying"`), 2)
		require.Len(t, log.with("class=transient more=99"), 1)
	})
}

// Without new deliveries, probes use up the attempts of the remaining ones, if they are limited.
func TestPermanentlyRefusedDeliveriesDieInTheEnd(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := down(sinks.Permanent(errors.New("400")))
		o.append("t", "", numbered("", toRefuse+3)...)
		f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{MaxAttempts: 4}, Parallelism: alone})
		pass(20 * time.Second)
		require.Equal(t, int64(toRefuse), f.Stats()[0].Dead)
		pass(2 * time.Minute)
		require.Equal(t, int64(toRefuse+3), f.Stats()[0].Dead)
		require.Equal(t, toRefuse+3*4, o.spent())
	})
}

// If the destination always answers one request as if it were down, such as with a 404 because of the
// notification's content, the sink must not be paused again and again.
func TestASingleDeliveryThatFindsTheSinkUnavailableSpendsItsAttempts(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: fails(sinks.Unavailable(errors.New("404")), always, "0003")}
		o.append("t", "", numbered("", 100)...)
		f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{MaxAttempts: 2, Initial: time.Second}, Parallelism: alone})
		pass(10 * time.Second)
		f.publish("t", "", numbered("more", 10)...)
		time.Sleep(time.Minute)
		f.publish("t", "", numbered("again", 10)...)
		pass(time.Minute)
		require.Equal(t, int64(119), f.Stats()[0].Delivered)
		require.Equal(t, []string{"sink dead 0003"}, o.parked())
		require.Equal(t, 2, o.spent())
	})
}

func TestAProbeThatHangsDoesNotStopOtherProbes(t *testing.T) {
	for _, left := range []int{1, 5} {
		t.Run(fmt.Sprintf("%d left", left), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				s := down(errors.New("500"))
				var hung atomic.Bool
				s.answer = func(_ context.Context, d *notification.Delivery) error {
					if d.ID == numbered("", toOpen+1)[toOpen] && hung.CompareAndSwap(false, true) {
						s.mended.Store(true)
						time.Sleep(5 * time.Minute) // ignores its context
					}
					return errors.New("500")
				}
				o.append("t", "", numbered("", toOpen+left)...)
				f := o.one(forwarder.Sink{Sink: s, Retry: later, Parallelism: forwarder.Parallelism{Threshold: 2}, Timeout: 4 * time.Second})
				pass(time.Minute)
				require.True(t, hung.Load())
				require.Equal(t, 1, f.Stats()[0].Abandoned)
				require.Equal(t, int64(left), f.Stats()[0].Delivered)
				require.Len(t, o.parked(), toOpen)
				time.Sleep(10 * time.Minute) // the destination is available again
			})
		})
	}
}

func TestRetriesSurviveAnOutage(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := down(errors.New("500"))
		ids := numbered("", 100)
		for i, id := range ids {
			o.append("t", fmt.Sprintf("key%d", i%30), id)
		}
		o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{MaxAttempts: 2}})
		time.Sleep(3 * time.Hour)
		s.mended.Store(true)
		pass(time.Hour)
		require.Empty(t, o.parked(), "no delivery spent both attempts during the outage")
		require.Equal(t, ids, slices.Compact(slices.Sorted(slices.Values(s.given()))))
	})
}
