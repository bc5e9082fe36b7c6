package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// recorder is an observer that records its calls.
type recorder struct {
	forwarder.Unobserved
	mu       sync.Mutex
	attempts map[string][]string // by id: class, duration, receipt, error
	batches  []string
	parked   []string
	dead     []string
	breaker  []string
	throttle []time.Duration
	leases   []string
	causes   map[forwarder.WakeCause]int
	grown    int
	settled  int // deliveries in checkpoints of the sink
}

var _ forwarder.Observer = (*recorder)(nil)

func (r *recorder) Attempt(a forwarder.Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.attempts == nil {
		r.attempts = make(map[string][]string)
	}
	text := fmt.Sprint(a.Duration)
	if a.Err != nil {
		text += fmt.Sprintf(" %s: %v", a.Class, a.Err)
	} else {
		text += " " + string(a.Receipt)
	}
	r.attempts[a.Delivery.ID] = append(r.attempts[a.Delivery.ID], text)
}

func (r *recorder) Batch(b forwarder.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches = append(r.batches, fmt.Sprintf("%s %d in %s", b.Sink, b.Deliveries, b.Duration))
}

func (r *recorder) Parked(p forwarder.Parked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parked = append(r.parked, fmt.Sprintf("%s %s %d %t", p.ID, p.State, p.Attempt, p.DueAt.IsZero()))
}

func (r *recorder) Dead(p forwarder.Parked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead = append(r.dead, fmt.Sprintf("%s %s %d", p.ID, p.State, p.Attempt))
}

func (r *recorder) Checkpoint(c forwarder.Checkpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Lane.Sink == "sink" {
		r.settled += c.Settled
	}
}

func (r *recorder) LeaseWon(l store.Lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.Sink == "sink" {
		r.leases = append(r.leases, "won")
	}
}

func (r *recorder) LeaseLost(l store.Lane, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case l.Sink != "sink":
	case err == nil:
		r.leases = append(r.leases, "released")
	case errors.Is(err, store.ErrLeaseLost):
		r.leases = append(r.leases, "lost")
	default:
		r.leases = append(r.leases, err.Error())
	}
}

func (r *recorder) Breaker(b forwarder.BreakerChange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.breaker = append(r.breaker, fmt.Sprintf("%s %t %t", b.Sink, b.Open, b.Cause != nil))
}

func (r *recorder) Throttle(w forwarder.Throttling) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.throttle = append(r.throttle, time.Until(w.Until))
}

func (r *recorder) Wake(w forwarder.Wake) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.causes == nil {
		r.causes = make(map[forwarder.WakeCause]int)
	}
	r.causes[w.Cause]++
	if w.Grown {
		r.grown++
	}
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
				require.Positive(t, r.causes[forwarder.WakeAsked])
				require.Positive(t, r.causes[forwarder.WakePoll])
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
		require.Equal(t, 3, r.causes[forwarder.WakeListened])
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
