package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// hosts is a sink whose destination is the part of the id before the dash. Destinations that are down
// answer as configured.
type hosts struct {
	script
	mu   sync.Mutex
	down map[string]error
	took map[string]time.Duration // how long a delivery takes
	asks map[string]int           // calls to destinations that are down
}

func newHosts() *hosts {
	s := &hosts{down: make(map[string]error), took: make(map[string]time.Duration), asks: make(map[string]int)}
	s.answer = func(ctx context.Context, d *notification.Delivery) error {
		name := s.Destination(d)
		s.mu.Lock()
		err, took := s.down[name], s.took[name]
		if err != nil {
			s.asks[name]++
		}
		s.mu.Unlock()
		return errors.Join(takesTime(ctx, took), err)
	}
	return s
}

func (s *hosts) Destination(d *notification.Delivery) string {
	name, _, _ := strings.Cut(d.ID, "-")
	return name
}

func (s *hosts) set(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down[name] = err
}

// takes sets how long deliveries to a destination take; "" sets that of all.
func (s *hosts) takes(name string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name == "" {
		clear(s.took)
	}
	s.took[name] = d
}

// asked returns how often a destination that is down was called since the previous asked.
func (s *hosts) asked(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.asks[name]
	s.asks[name] = 0
	return n
}

// count returns the number of attempted deliveries of a tenant.
func count(ids []string, tenant string) (n int) {
	for _, id := range ids {
		if strings.HasPrefix(id, tenant+"-") {
			n++
		}
	}
	return n
}

func (o *outbox) appendTo(tenant string, n int) {
	for _, id := range numbered(tenant+"-", n) {
		o.append("t", tenant+id[len(id)-2:], id)
	}
}

func TestADestinationThatIsDownDelaysNoOther(t *testing.T) {
	for name, err := range map[string]error{
		"unavailable": sinks.Unavailable(errors.New("connection refused")),
		"throttled":   sinks.Throttled(time.Date(2000, 1, 1, 0, 5, 0, 0, time.UTC), errors.New("429")),
		"failing":     errors.New("500"),
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				s := newHosts()
				s.set("dead", err)
				o.appendTo("dead", 30)
				o.appendTo("good", 30)
				f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Max: time.Minute}})
				f.flush()
				require.Equal(t, 30, count(s.given(), "good"), "at once")
				pass(4 * time.Minute)
				// The jitter of the pauses decides the number. Without a breaker each of the 30 would be tried nine times.
				require.Less(t, s.asked("dead"), 90, "it only gets probes")
				require.Zero(t, f.Stats()[0].Dead)
				o.appendTo("more", 30)
				f.flush()
				require.Equal(t, 30, count(s.given(), "more"))

				s.set("dead", nil)
				pass(8 * time.Minute)
				require.Empty(t, o.parked())
				require.Equal(t, int64(90), f.Stats()[0].Delivered)
			})
		})
	}
}

// This sink can name destinations but returns none, like a sink with a fixed address.
func TestASinkOfOneFixedDestinationUsesAllItsSlots(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := newHosts()
		s.took[""] = time.Second
		o.appendTo("", 40)
		f := o.one(forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: 16}})
		f.flush()
		require.Equal(t, 16, f.Stats()[0].InFlight)
	})
}

func TestADestinationThatIsDownSpendsNoAttemptsAndKeepsItsOrder(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := newHosts()
		s.set("dead", sinks.Unavailable(errors.New("connection refused")))
		answer, spent := s.answer, atomic.Int64{}
		s.answer = func(ctx context.Context, d *notification.Delivery) error {
			spent.Add(int64(d.Attempt - 1))
			return answer(ctx, d)
		}
		o.append("t", "k", numbered("dead-", 50)...)
		o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{MaxAttempts: 1}})
		pass(3 * time.Hour)
		s.set("dead", nil)
		s.given()
		pass(time.Hour)
		require.Equal(t, numbered("dead-", 50), s.given())
		require.Empty(t, o.parked())
		require.Zero(t, spent.Load())
	})
}

func TestPermanentFailuresOpenTheBreakerOfADestination(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := newHosts()
		s.set("bad", sinks.Permanent(errors.New("400")))
		o.appendTo("bad", 100)
		o.appendTo("good", 100)
		f := o.one(forwarder.Sink{Sink: s, Parallelism: alone})
		f.flush()
		require.Equal(t, int64(100), f.Stats()[0].Delivered)
		require.Equal(t, int64(toRefuse), f.Stats()[0].Dead, "only the deliveries before the breaker opened")
		s.set("bad", nil)
		pass(time.Hour)
		require.Equal(t, int64(200-toRefuse), f.Stats()[0].Delivered)
	})
}

// Deliveries that wait for their destination use nothing of the sink's rate.
func TestADestinationThatIsDownUsesNoneOfTheRate(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := newHosts()
		s.set("dead", sinks.Unavailable(errors.New("connection refused")))
		o.appendTo("dead", 100)
		o.appendTo("good", 40)
		f := o.one(forwarder.Sink{Sink: s, Rate: forwarder.Rate{Events: 10, Per: time.Second}, Parallelism: alone})
		f.Wake()
		pass(6 * time.Second)
		require.Equal(t, int64(40), f.Stats()[0].Delivered)
	})
}

func TestOneDeadTenantOfManyCostsTheOthersNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := newHosts()
		s.set("t000", sinks.Unavailable(errors.New("connection refused")))
		s.took["t000"] = 10 * time.Second // and the delivery then fails
		for i := range 50 {
			o.appendTo(fmt.Sprintf("t%03d", i), 20)
		}
		f := o.one(forwarder.Sink{Sink: s})
		f.Wake()
		pass(time.Second)
		require.Equal(t, int64(49*20), f.Stats()[0].Delivered)
		f.abandon()
	})
}

// 24 of 48 tenants never answer, three quarters as many as there are slots: with each delivery to them waiting for its
// timeout, those of two seconds would take all slots.
func TestManyTenantsThatNeverAnswerCostTheOthersNothing(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		const tenants, dead, seconds, timeout = 48, 24, 24, 10 * time.Second
		s := newHosts()
		for i := range dead {
			s.takes(fmt.Sprintf("t%03d", i), time.Hour)
		}
		f := o.one(forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: 32}, Timeout: timeout})
		for second := range seconds {
			for i := range tenants {
				o.append("t", "", fmt.Sprintf("t%03d-%d", i, second))
			}
			f.Wake()
			pass(time.Second)
			require.EqualValues(t, (tenants-dead)*(second+1), f.Stats()[0].Delivered, "after %d s", second+1)
		}
		s.takes("", 0)
		pass(15 * time.Minute)
		require.EqualValues(t, tenants*seconds, f.Stats()[0].Delivered)
		require.Empty(t, o.parked())
	})
}

// Each second another tenant begins to hang. It must not get further slots each second, of which the last ones would be
// taken by those that begin later.
func TestADestinationThatDoesNotAnswerGetsNoFurtherCalls(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		const good, seconds = 8, 12
		s := newHosts()
		f := o.one(forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: 32}})
		for second := range seconds {
			s.takes(fmt.Sprintf("dead%02d", second), time.Hour)
			for i := range second + 1 {
				o.append("t", "", fmt.Sprintf("dead%02d-a%d", i, second), fmt.Sprintf("dead%02d-b%d", i, second))
			}
			for i := range good {
				o.append("t", "", fmt.Sprintf("good%02d-%d", i, second))
			}
			f.Wake()
			pass(time.Second)
			require.EqualValues(t, good*(second+1), f.Stats()[0].Delivered, "after %d s", second+1)
		}
		s.takes("", 0)
		pass(5 * time.Minute)
		require.EqualValues(t, seconds*(good+seconds+1), f.Stats()[0].Delivered)
	})
}

// A tenant has a call that takes 20 s, and its others are quick.
func TestASlowCallDelaysNoOtherToItsDestinationWhileSlotsAreFree(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := &hosts{}
		s.answer = either(hangs("slow-0"), takes(time.Second))
		f := o.one(forwarder.Sink{Sink: s, Timeout: 20 * time.Second})
		f.publish("t", "", "slow-0")
		pass(2 * time.Second)
		f.publish("t", "", "slow-1")
		pass(time.Second)
		require.Equal(t, 1, s.times()["slow-1"])

		pass(2 * time.Second)
		for i := range 12 { // three quarters of the slots
			o.append("t", "", fmt.Sprintf("quick%d-0", i))
		}
		o.append("t", "", "slow-2")
		f.flush()
		require.Empty(t, s.begun("slow-2"))
		pass(2 * time.Second)
		require.Equal(t, 1, s.times()["slow-2"])
	})
}

// Without a breaker, a destination's deliveries wait only for slots.
func TestDeliveriesThatWaitForSlotsOfTheirDestinationsAreRarelyWritten(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		const tenants = 64
		s := newHosts()
		for i := range tenants {
			s.took[fmt.Sprintf("t%03d", i)] = time.Hour
			o.append("t", "", fmt.Sprintf("t%03d-0", i))
		}
		var parked atomic.Int32
		watch := countsParked{&parked}
		f := o.one(forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: 8}, Breaker: forwarder.Breaker{Off: true}, Timeout: 10 * time.Second}, watchedBy(watch))
		f.Wake()
		pass(2 * time.Minute)
		require.Less(t, parked.Load(), int32(6*tenants))
		f.abandon()
	})
}

type countsParked struct{ n *atomic.Int32 }

func (c countsParked) Observe(e event.Event) {
	if _, ok := e.(*event.Parked); ok {
		c.n.Add(1)
	}
}

func TestTheObserverAndTheStateNameTheDestination(t *testing.T) {
	onEachStoreIfLong(t, func(t *testing.T, o *outbox) {
		s := newHosts()
		s.set("dead", sinks.Unavailable(errors.New("connection refused")))
		var opened, closed atomic.Int32
		watch := &breakerWatch{change: func(c event.BreakerChange) {
			require.Equal(t, "dead", c.Destination)
			if c.Open {
				opened.Add(1)
			} else {
				closed.Add(1)
			}
		}}
		o.appendTo("dead", 20)
		o.one(forwarder.Sink{Sink: s}, func(c *forwarder.Config) { c.Observer, c.Lease = watch, time.Minute })
		pass(2 * time.Minute)
		membership, err := o.store.Membership(t.Context())
		require.NoError(t, err)
		require.Len(t, membership.Members, 1)
		state := membership.Members[0].States["sink"]
		require.False(t, state.BreakerOpen)
		require.Equal(t, 1, state.AllDestinations)
		require.Equal(t, "dead", state.Destinations[0].Destination)
		require.Contains(t, state.Destinations[0].Cause, "connection refused")
		s.set("dead", nil)
		pass(time.Hour)
		require.EqualValues(t, 1, opened.Load())
		require.EqualValues(t, 1, closed.Load())
		require.Empty(t, o.parked())
	})
}

type breakerWatch struct{ change func(event.BreakerChange) }

func (w *breakerWatch) Observe(e event.Event) {
	if c, ok := e.(*event.BreakerChange); ok {
		w.change(*c)
	}
}
