package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// recorder is an observer that records its calls.
type recorder struct {
	mu       sync.Mutex
	attempts map[string][]string // by id: class, duration, receipt, error
	batches  []string
	parked   []string
	dead     []string
	breaker  []string
	throttle []time.Duration
	leases   []string
	causes   map[event.LookCause]int
	grown    int
	settled  int // deliveries in checkpoints of the sink
}

var _ event.Observer = (*recorder)(nil)

func (r *recorder) Observe(e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e := e.(type) {
	case *event.Attempt:
		if r.attempts == nil {
			r.attempts = make(map[string][]string)
		}
		text := fmt.Sprint(e.Duration)
		if e.Err != nil {
			text += fmt.Sprintf(" %s: %v", e.Class, e.Err)
		} else {
			text += " " + string(e.Receipt)
		}
		r.attempts[e.Delivery.ID] = append(r.attempts[e.Delivery.ID], text)
	case *event.Batch:
		r.batches = append(r.batches, fmt.Sprintf("%s %d in %s", e.Sink, e.Deliveries, e.Duration))
	case *event.Parked:
		if e.State == store.StateDead {
			r.dead = append(r.dead, fmt.Sprintf("%s %s %d", e.ID, e.State, e.Attempt))
		} else {
			r.parked = append(r.parked, fmt.Sprintf("%s %s %d %t", e.ID, e.State, e.Attempt, e.DueAt.IsZero()))
		}
	case *event.Checkpoint:
		if e.Lane.Sink == "sink" {
			r.settled += e.Settled
		}
	case *event.LeaseChange:
		if e.Lane.Sink == "sink" {
			r.leases = append(r.leases, leaseChange(e))
		}
	case *event.BreakerChange:
		r.breaker = append(r.breaker, fmt.Sprintf("%s %t %t", e.Sink, e.Open, e.Cause != nil))
	case *event.Throttling:
		r.throttle = append(r.throttle, time.Until(e.Until))
	case *event.Look:
		if r.causes == nil {
			r.causes = make(map[event.LookCause]int)
		}
		r.causes[e.Cause]++
		if e.Grown {
			r.grown++
		}
	}
}

func leaseChange(c *event.LeaseChange) string {
	switch {
	case c.Won:
		return "won"
	case c.Err == nil:
		return "released"
	case errors.Is(c.Err, store.ErrLeaseLost):
		return "lost"
	}
	return c.Err.Error()
}

func TestAnObserverSeesTheOutcomesOfDeliveries(t *testing.T) {
	for _, observed := range []bool{true, false} {
		t.Run(fmt.Sprintf("observed %t", observed), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				s := &script{answer: either(takes(20*time.Millisecond),
					fails(errors.New("once"), 1, "late"), fails(sinks.Permanent(errors.New("400")), always, "dies"))}
				r := &recorder{}
				f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: time.Minute}, Breaker: forwarder.Breaker{Off: true}}, func(c *forwarder.Config) {
					if observed {
						c.Observer = r
					}
				})
				o.append("t", "", "good", "dies")
				o.append("t", "k", "late", "behind")
				o.schedule("t", "", "scheduled", time.Now().Add(time.Hour))
				f.flush()
				pass(2 * time.Hour)
				o.expireLeases()
				pass(2 * time.Hour)
				f.flush()
				f.end()
				require.ElementsMatch(t, []string{"good", "dies", "late", "late", "behind", "scheduled"}, s.given())
				require.Equal(t, []string{"sink dead dies"}, o.parked())
				if !observed {
					require.Equal(t, &recorder{}, r)
					return
				}
				require.Equal(t, map[string][]string{
					"good":      {"20ms taken"},
					"dies":      {"20ms permanent: permanent: 400"},
					"late":      {"20ms transient: once", "20ms taken"},
					"behind":    {"20ms taken"},
					"scheduled": {"20ms taken"},
				}, r.attempts)
				require.Empty(t, r.batches)
				require.ElementsMatch(t, []string{"late retrying 1 false", "behind blocked 0 true", "scheduled scheduled 0 false"}, r.parked)
				require.Equal(t, []string{"dies dead 1"}, r.dead)
				require.Equal(t, []string{"won", "lost", "won", "released"}, r.leases)
				require.Equal(t, 8, r.settled, "five of the log, and three parked ones")
				require.Positive(t, r.causes[event.LookAsked])
				require.Positive(t, r.causes[event.LookPoll])
				require.Positive(t, r.grown)
				require.Empty(t, r.breaker)
				require.Empty(t, r.throttle)
			})
		})
	}
}

func TestAnObserverSeesOutagesAndThrottling(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		began := time.Now()
		s := &script{answer: either(
			failsUntil(began.Add(time.Minute), sinks.Unavailable(errors.New("connection refused"))),
			failsUntil(began.Add(3*time.Minute), sinks.Throttled(began.Add(3*time.Minute), errors.New("429"))),
		)}
		r := &recorder{}
		f := o.one(forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: 4}}, watchedBy(r))
		f.publish("t", "", numbered("n", 20)...)
		pass(10 * time.Minute)
		f.end()
		require.Equal(t, "sink true true", r.breaker[0])
		require.Equal(t, "sink false false", r.breaker[len(r.breaker)-1])
		require.Len(t, r.breaker, 2, "once each")
		require.Len(t, r.throttle, 1, "reported once, not for each delivery")
		require.Positive(t, r.throttle[0])
		require.LessOrEqual(t, r.throttle[0], 2*time.Minute)
		require.Equal(t, 20, r.settled)
		for id, attempts := range r.attempts {
			require.Equal(t, "0s taken", attempts[len(attempts)-1], id)
		}
	})
}

func TestAnObserverSeesBatchesAndListening(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := &batches{limits: sinks.BatchLimits{Size: 10}, whole: func(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
			_ = takesTime(ctx, 30*time.Millisecond)
			results := make([]sinks.Result, len(batch))
			for i, d := range batch {
				if d.ID == "n0003" && d.Attempt == 1 {
					results[i].Err = errors.New("once")
				}
			}
			return results
		}}
		r := &recorder{}
		f := o.one(forwarder.Sink{Sink: s}, watchedBy(r))
		f.flush()
		f.publish("t", "", numbered("n", 10)...)
		pass(time.Hour)
		f.end()
		require.Equal(t, []string{"sink 10 in 30ms", "sink 1 in 30ms"}, r.batches)
		require.Len(t, r.attempts, 10)
		require.Equal(t, []string{"30ms transient: once", "30ms "}, r.attempts["n0003"])
	})
}

func TestAnObserverSeesThatTheDatabaseWoke(t *testing.T) {
	onlyPostgres(t, func(t *testing.T, o *outbox) {
		r := &recorder{}
		announcing := &announced{appendable: o.store, news: make(chan store.News)}
		f := o.one(forwarder.Sink{Sink: &script{}}, func(c *forwarder.Config) { c.Observer = r; c.Store = announcing })
		f.flush()
		for range 3 {
			announcing.news <- store.NewsRows
			time.Sleep(time.Second)
		}
		announcing.news <- store.NewsLanes
		pass(time.Second)
		r.mu.Lock()
		require.Equal(t, 3, r.causes[event.LookListened])
		r.mu.Unlock()
	})
}

// announced is a store whose announcements come from the test.
type announced struct {
	appendable
	news chan store.News
}

func (a *announced) Listen(ctx context.Context, hear func(store.News)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-a.news:
			hear(n)
		}
	}
}
