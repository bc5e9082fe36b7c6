package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
		require.Equal(t, numbered("", 30), given[:30])
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

func TestTheShareOfFailuresThatOpensTheBreakerIsConfigurable(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := newBroken()
		o.append("t", "", numbered("", 200)...)
		f := o.one(forwarder.Sink{Sink: s, Retry: later, Parallelism: alone, Breaker: forwarder.Breaker{FailureShare: 0.5, Among: 10}})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, o.parked(), 5)
		f.end()
	})
}

// toRefuse is how many keys with permanently refused deliveries open a breaker.
const toRefuse = 10

func TestPermanentFailuresOfManyKeysOpenTheBreaker(t *testing.T) {
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

func TestPermanentFailuresAmongSuccessesDoNotOpenTheBreaker(t *testing.T) {
	for name, good := range map[string]func(id string) bool{
		"each tenth succeeds":   func(id string) bool { return id[3] == '5' },
		"all have the same key": func(string) bool { return false },
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				s := script{answer: func(_ context.Context, d *notification.Delivery) error {
					if good(d.ID) {
						return nil
					}
					return sinks.Permanent(errors.New("400"))
				}}
				key := ""
				if name == "all have the same key" {
					key = "k"
				}
				o.append("t", key, numbered("", 200)...)
				f := o.one(forwarder.Sink{Sink: &s, Parallelism: alone})
				f.flush()
				require.Len(t, s.given(), 200)
				require.Equal(t, int64(200), f.Stats()[0].Dead+f.Stats()[0].Delivered)
				f.end()
			})
		})
	}
}

// Without new deliveries, probes use up the attempts of the remaining ones.
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
