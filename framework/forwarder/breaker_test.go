package forwarder_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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

// toOpen is how many failures of different keys open a breaker with default settings.
const toOpen = 18

// later retries after the end of a test.
var later = forwarder.Retry{Initial: 2 * time.Hour, Max: 2 * time.Hour}

// broken is a sink whose destination answers 500 until it is repaired.
type broken struct {
	script
	mended atomic.Bool
	at     []time.Time // of each call; guarded by script
}

func newBroken() *broken {
	s := &broken{}
	s.answer = func(context.Context, *notification.Delivery) error {
		s.mu.Lock()
		s.at = append(s.at, time.Now())
		s.mu.Unlock()
		if !s.mended.Load() {
			return errors.New("500")
		}
		return nil
	}
	return s
}

func TestFailuresOfManyKeysOpenTheBreaker(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s, other := newBroken(), &script{}
		ids := numbered("", 200)
		o.append("t", "", ids...)
		f := o.start(map[string]forwarder.Sink{"sink": {Sink: s, Retry: later}, "up": {Sink: other}}, route.Routes{"*": route.To("sink", "up")})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, o.parked(), toOpen, "the failures before the breaker opened")
		require.Equal(t, toOpen, value[int](o, `SELECT sum(attempt) FROM outbox_parked`))
		require.Len(t, other.given(), 200, "another sink is not affected")
		require.Less(t, len(s.given()), 3600/4+40, "it only gets probes")
		s.mostAtOnce()
		time.Sleep(time.Minute)
		require.Equal(t, 1, s.mostAtOnce())

		s.mended.Store(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, int64(200-toOpen), f.Stats()[0].Delivered)
		s.mu.Lock()
		for id, attempt := range s.attempts {
			require.Equal(t, 1, attempt, "no attempt was spent on %s", id)
		}
		s.mu.Unlock()
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		require.Empty(t, o.parked())
		f.end()
	})
}

func TestProbesTakeTurnsAtGrowingIntervals(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := newBroken()
		o.append("t", "", numbered("", 30)...)
		f := o.one(forwarder.Sink{Sink: s, Retry: later, Breaker: forwarder.Breaker{MaxPause: time.Minute}, Parallelism: alone})
		time.Sleep(time.Hour)
		synctest.Wait()
		given := s.given()
		require.Equal(t, numbered("", toOpen), given[:toOpen])
		require.ElementsMatch(t, numbered("", 30)[toOpen:], given[toOpen:30], "each waiting delivery once")
		require.Equal(t, given[toOpen:30], given[30:42], "the waiting deliveries, in turn")
		expected := 100 * time.Millisecond
		for i := toOpen; i < len(s.at); i++ {
			require.InEpsilon(t, expected, s.at[i].Sub(s.at[i-1]), 0.21, "pause %d", i-toOpen)
			expected = min(2*expected, time.Minute)
		}
		require.Greater(t, len(s.at), toOpen+50)
		f.end()
	})
}

func TestTheFailuresOfOneKeyDoNotOpenTheBreaker(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		s.answer = func(_ context.Context, d *notification.Delivery) error {
			if d.Key == "bad" {
				return errors.New("500")
			}
			return nil
		}
		o.append("t", "bad", numbered("bad", 60)...)
		f := o.one(forwarder.Sink{Sink: &s, Retry: forwarder.Retry{MaxAttempts: 3}})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, s.given(), 180)
		require.Len(t, o.parked(), 60)
		require.Equal(t, int64(60), f.Stats()[0].Dead)
		o.append("t", "", "good")
		f.flush()
		require.Equal(t, []string{"good"}, s.given())
		f.end()
	})
}

func TestFailuresAmongSuccessesDoNotOpenTheBreaker(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		s.answer = func(_ context.Context, d *notification.Delivery) error {
			if d.ID[len(d.ID)-1] < '8' { // 8 of 10
				return errors.New("500")
			}
			return nil
		}
		o.append("t", "", numbered("", 500)...)
		f := o.one(forwarder.Sink{Sink: &s, Retry: later, Parallelism: alone})
		f.flush()
		require.Len(t, s.given(), 500)
		require.Len(t, o.parked(), 400)
		f.end()
	})
}

func TestOnePoisonousDeliveryDoesNotKeepTheBreakerOpen(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := newBroken()
		ids := numbered("", toOpen+3)
		poison := ids[toOpen]
		answer := s.answer
		s.answer = func(ctx context.Context, d *notification.Delivery) error {
			if d.ID == poison {
				return errors.New("500")
			}
			return answer(ctx, d)
		}
		o.append("t", "", ids...)
		f := o.one(forwarder.Sink{Sink: s, Retry: later, Parallelism: alone})
		time.Sleep(time.Minute)
		s.mended.Store(true)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		require.Equal(t, int64(2), f.Stats()[0].Delivered)
		require.Len(t, o.parked(), toOpen+1, "since the others succeed, its failures count")
		f.end()
	})
}

func TestDeliveriesInFlightWhenTheBreakerOpensDoNotCloseIt(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := newBroken()
		answer := s.answer
		s.answer = func(ctx context.Context, d *notification.Delivery) error {
			switch d.ID {
			case "0000": // succeeds late
				time.Sleep(10 * time.Second)
				return nil
			case "0001": // fails late
				time.Sleep(10 * time.Second)
			}
			return answer(ctx, d)
		}
		o.append("t", "", numbered("", 100)...)
		f := o.one(forwarder.Sink{Sink: s, Retry: later})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, int64(1), f.Stats()[0].Delivered)
		require.Len(t, o.parked(), toOpen, "0001 is not one of them")
		f.end()
	})
}

func TestWithoutABreakerEachDeliverySpendsItsAttempts(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := newBroken()
		o.append("t", "", numbered("", 200)...)
		f := o.one(forwarder.Sink{Sink: s, Retry: later, Breaker: forwarder.Breaker{Off: true}})
		f.flush()
		require.Len(t, o.parked(), 200)
		f.end()
	})
}

// toRefuse is how many permanently refused deliveries in a row open a breaker.
const toRefuse = 10

func TestPermanentFailuresInARowOpenTheBreaker(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		var mended atomic.Bool
		s.answer = func(context.Context, *notification.Delivery) error {
			if mended.Load() {
				return nil
			}
			return sinks.Permanent(errors.New("400"))
		}
		o.append("t", "", numbered("", 200)...)
		f := o.one(forwarder.Sink{Sink: &s})
		f.flush()
		s.mostAtOnce()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, int64(toRefuse), f.Stats()[0].Dead, "only the deliveries before the breaker opened")
		require.Equal(t, 1, s.mostAtOnce(), "it gets probes")
		mended.Store(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, o.parked(), toRefuse)
		require.Equal(t, int64(200-toRefuse), f.Stats()[0].Delivered)
		f.end()
	})
}

// A wrong configuration must not kill the backlog of a sink with few keys.
func TestPermanentFailuresOfFewKeysOpenTheBreaker(t *testing.T) {
	for _, keys := range []int{1, 5, 9, 10} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				s := script{answer: func(context.Context, *notification.Delivery) error { return sinks.Permanent(errors.New("400")) }}
				for i, id := range numbered("", 100) {
					o.append("t", fmt.Sprint("key", i%keys), id)
				}
				f := o.one(forwarder.Sink{Sink: &s})
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				require.Equal(t, int64(toRefuse), f.Stats()[0].Dead)
				f.end()
			})
		})
	}
}

func TestPermanentFailuresAmongSuccessesDoNotOpenTheBreaker(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := script{answer: func(_ context.Context, d *notification.Delivery) error {
			if d.ID[3] == '5' { // each tenth
				return nil
			}
			return sinks.Permanent(errors.New("400"))
		}}
		o.append("t", "", numbered("", 200)...)
		f := o.one(forwarder.Sink{Sink: &s, Parallelism: alone})
		f.flush()
		require.Len(t, s.given(), 200)
		require.Equal(t, int64(200), f.Stats()[0].Dead+f.Stats()[0].Delivered)
		f.end()
	})
}

// The notifications of one publisher, which the destination refuses or which fail, must not stop those of all others.
func TestProbesTryOtherNotificationsThanThoseThatFailed(t *testing.T) {
	errs := map[string]error{"refused": sinks.Permanent(errors.New("422")), "failing": errors.New("500"), "unavailable": sinks.Unavailable(errors.New("401"))}
	for name, err := range errs {
		for what, of := range map[string]struct{ typ, key, badKey string }{"type": {"good", "", ""}, "key": {"t", "good", "bad"}, "nothing": {"t", "", ""}} {
			t.Run(name+", differs in "+what, func(t *testing.T) {
				onSQLite(t, func(t *testing.T, o *outbox) {
					s := script{answer: func(_ context.Context, d *notification.Delivery) error {
						if d.ID[0] == 'b' {
							return err
						}
						return nil
					}}
					o.append("t", of.badKey, numbered("bad", 200)...)
					o.append(of.typ, of.key, numbered("good", 10)...)
					f := o.one(forwarder.Sink{Sink: &s})
					time.Sleep(time.Minute)
					synctest.Wait()
					require.Equal(t, int64(10), f.Stats()[0].Delivered)
					f.end()
				})
			})
		}
	}
}

func TestNotificationsThatAreNeverSentSayNothingAboutTheDestination(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var down atomic.Bool
		s := script{answer: func(_ context.Context, d *notification.Delivery) error {
			switch {
			case d.ID[0] == 'b':
				return sinks.Invalid(errors.New("no address"))
			case down.Load():
				return sinks.Unavailable(errors.New("connection refused"))
			}
			return nil
		}}
		o.append("t", "", numbered("bad", 200)...)
		o.append("t", "", numbered("good", 10)...)
		f := o.one(forwarder.Sink{Sink: &s})
		f.flush()
		require.Equal(t, int64(200), f.Stats()[0].Dead)
		require.Equal(t, int64(10), f.Stats()[0].Delivered, "it opened no breaker")

		down.Store(true)
		o.append("t", "", numbered("more", 20)...)
		f.flush()
		o.append("t", "", numbered("bad again", 50)...)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, f.Figures().Sinks[0].BreakerOpen, "it closed no breaker")
		f.end()
	})
}

// Twelve attempts, with which deliveries once died, last half an hour.
func TestAnOutageOfHoursKillsNothingInAQuietSink(t *testing.T) {
	for _, keys := range []int{1, 2, 17} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			onSQLite(t, func(t *testing.T, o *outbox) {
				s := newBroken()
				for i, id := range numbered("", 20) {
					o.append("t", fmt.Sprint("key", i%keys), id)
				}
				f := o.one(forwarder.Sink{Sink: s})
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				require.Zero(t, f.Stats()[0].Dead)
				require.Equal(t, keys > 1, f.Figures().Sinks[0].BreakerOpen, "nothing has succeeded for minutes")
				s.mended.Store(true)
				time.Sleep(20 * time.Minute)
				synctest.Wait()
				require.Equal(t, int64(20), f.Stats()[0].Delivered)
				f.end()
			})
		})
	}
}

func TestTheLogCountsFailuresOfAKindAfterTheFirst(t *testing.T) {
	onSQLite(t, func(t *testing.T, o *outbox) {
		var log bytes.Buffer
		s := script{answer: func(_ context.Context, d *notification.Delivery) error {
			if d.ID[0] == 'b' {
				return sinks.Invalid(errors.New("no address"))
			}
			return errors.New("500")
		}}
		o.append("t", "", numbered("bad", 200)...)
		o.append("t", "", numbered("failing", 100)...)
		f := o.one(forwarder.Sink{Sink: &s, Retry: later, Breaker: forwarder.Breaker{Off: true}}, func(c *forwarder.Config) {
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		time.Sleep(time.Minute)
		f.end()
		require.Equal(t, 2, strings.Count(log.String(), `msg="delivery is dead"`))
		require.Contains(t, log.String(), "class=invalid more=199")
		require.Equal(t, 2, strings.Count(log.String(), `msg="delivery failed, retrying"`))
		require.Contains(t, log.String(), "class=transient more=99")
	})
}

// Without new deliveries, probes use up the attempts of the remaining ones, if they are limited.
func TestPermanentlyRefusedDeliveriesDieInTheEnd(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := script{answer: func(context.Context, *notification.Delivery) error { return sinks.Permanent(errors.New("400")) }}
		o.append("t", "", numbered("", toRefuse+3)...)
		f := o.one(forwarder.Sink{Sink: &s, Retry: forwarder.Retry{MaxAttempts: 4}, Parallelism: alone})
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.Equal(t, int64(toRefuse), f.Stats()[0].Dead)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, int64(toRefuse+3), f.Stats()[0].Dead)
		require.Equal(t, 3, value[int](o, `SELECT count(*) FROM outbox_parked WHERE attempt = 4`))
		f.end()
	})
}

// If the destination always answers one request as if it were down, such as with a 404 because of the
// notification's content, the sink must not be paused again and again.
func TestASingleDeliveryThatFindsTheSinkUnavailableSpendsItsAttempts(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := script{answer: func(_ context.Context, d *notification.Delivery) error {
			if d.ID == "0003" {
				return sinks.Unavailable(errors.New("404"))
			}
			return nil
		}}
		o.append("t", "", numbered("", 100)...)
		f := o.one(forwarder.Sink{Sink: &s, Retry: forwarder.Retry{MaxAttempts: 2, Initial: time.Second}, Parallelism: alone})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		o.append("t", "", numbered("more", 10)...)
		f.flush()
		time.Sleep(time.Minute)
		o.append("t", "", numbered("again", 10)...)
		f.flush()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, int64(119), f.Stats()[0].Delivered)
		require.Equal(t, []string{"sink dead 0003"}, o.parked())
		require.Equal(t, 2, value[int](o, `SELECT attempt FROM outbox_parked`))
		f.end()
	})
}

func TestAPermanentAnswerEndsAnOutage(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := newBroken()
		answer := s.answer
		s.answer = func(ctx context.Context, d *notification.Delivery) error {
			if s.mended.Load() && d.ID == "0019" {
				return sinks.Permanent(errors.New("400"))
			}
			return answer(ctx, d)
		}
		o.append("t", "", numbered("", 40)...)
		f := o.one(forwarder.Sink{Sink: s, Retry: later, Parallelism: alone})
		time.Sleep(time.Minute)
		s.mended.Store(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, int64(40-toOpen-1), f.Stats()[0].Delivered)
		require.Equal(t, int64(1), f.Stats()[0].Dead)
		f.end()
	})
}

func TestADestinationThatIsReachedAgainCountsAttempts(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		var state atomic.Int32
		s.answer = func(context.Context, *notification.Delivery) error {
			switch {
			case state.Load() == 0:
				return sinks.Unavailable(errors.New("connection refused"))
			case state.CompareAndSwap(1, 2):
				return errors.New("500")
			}
			return nil
		}
		o.append("t", "", numbered("", 30)...)
		f := o.one(forwarder.Sink{Sink: &s, Retry: later})
		time.Sleep(time.Minute)
		require.Empty(t, o.parked())
		state.Store(1)
		time.Sleep(7 * time.Second)
		synctest.Wait()
		require.Equal(t, int64(29), f.Stats()[0].Delivered)
		require.Len(t, o.parked(), 1)
		require.Equal(t, 1, value[int](o, `SELECT attempt FROM outbox_parked`))
		f.end()
	})
}

func TestAProbeThatHangsDoesNotStopOtherProbes(t *testing.T) {
	for _, left := range []int{1, 5} {
		t.Run(fmt.Sprintf("%d left", left), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				s := newBroken()
				answer := s.answer
				var hung atomic.Bool
				s.answer = func(ctx context.Context, d *notification.Delivery) error {
					if d.ID == numbered("", toOpen+1)[toOpen] && hung.CompareAndSwap(false, true) {
						s.mended.Store(true)
						time.Sleep(5 * time.Minute) // ignores its context
						return errors.New("too late")
					}
					return answer(ctx, d)
				}
				o.append("t", "", numbered("", toOpen+left)...)
				f := o.one(forwarder.Sink{Sink: s, Retry: later, Parallelism: forwarder.Parallelism{Threshold: 2}, Timeout: 4 * time.Second})
				time.Sleep(time.Minute)
				synctest.Wait()
				require.True(t, hung.Load())
				require.Equal(t, 1, f.Stats()[0].Abandoned)
				require.Equal(t, int64(left), f.Stats()[0].Delivered)
				require.Len(t, o.parked(), toOpen)
				time.Sleep(10 * time.Minute) // the destination is available again
				f.end()
			})
		})
	}
}

func TestRetriesSurviveAnOutage(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := newBroken()
		ids := numbered("", 100)
		for i, id := range ids {
			o.append("t", fmt.Sprintf("key%d", i%30), id)
		}
		f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{MaxAttempts: 2}})
		time.Sleep(3 * time.Hour)
		s.mended.Store(true)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, o.parked(), "no delivery spent both attempts during the outage")
		given := s.given()
		slices.Sort(given)
		require.Equal(t, ids, slices.Compact(given))
		f.end()
	})
}
