package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// TestTwoForwardersSharingLanesLoseNothing is a history on PostgreSQL, whose transactions and lanes SQLite does not
// have: forwarders come, go and lose their leases while a sink that takes batches fails in all ways.
func TestTwoForwardersSharingLanesLoseNothing(t *testing.T) {
	t.Parallel()
	for seed := range seeds(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onPostgres(t, func(t *testing.T, o *outbox) {
				s := &sharing{outbox: o, rng: rand.New(rand.NewPCG(seed, 1))}
				s.script.answer = s.answer
				for range rounds(8) {
					f, g := s.start(), s.start()
					s.publishForAWhile()
					if s.rng.IntN(2) == 0 {
						f.end()
					} else {
						s.loseLeases()
						f.abandon()
					}
					time.Sleep(2 * time.Second)
					g.end()
				}
				s.check(t)
			})
		})
	}
}

// sharing is an outbox whose forwarders share lanes, and their destination.
type sharing struct {
	*outbox
	script
	rng       *rand.Rand
	published int
	order     []string // "key/id" of first deliveries, without scheduled ones
}

func (s *sharing) answer(ctx context.Context, d *notification.Delivery) error {
	outcome := rand.IntN(100)
	if err := takesTime(ctx, time.Duration(rand.IntN(30))*time.Millisecond); err != nil {
		return err
	}
	switch {
	case outcome < 25:
		return errors.New("later")
	case outcome < 28:
		return sinks.Unavailable(errors.New("down"))
	case outcome < 30:
		return sinks.Throttled(time.Now().Add(100*time.Millisecond), errors.New("429"))
	case outcome < 33:
		return takesTime(ctx, 20*time.Second)
	}
	return nil
}

func (s *sharing) BatchLimits() sinks.BatchLimits { return sinks.BatchLimits{Size: 10, Ordered: true} }

func (s *sharing) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	results := make([]sinks.Result, len(batch))
	failed := make(map[string]bool)
	for i, d := range batch {
		if d.Key != "" && failed[d.Key] {
			results[i].Err = errors.New("not tried: one before it failed")
			continue
		}
		results[i].Receipt, results[i].Err = s.Deliver(ctx, d)
		failed[d.Key] = results[i].Err != nil
		s.note(d, results[i].Err)
	}
	return results
}

func (s *sharing) note(d *notification.Delivery, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.took[d.ID] == 1 && d.Key != "" && d.DeliverAt.IsZero() {
		s.order = append(s.order, d.Key+"/"+d.ID)
	}
}

func (s *sharing) start() *engine {
	return s.one(forwarder.Sink{
		Sink: s, Fairness: "tenant", Rate: forwarder.Rate{Events: 300, Per: time.Second},
		Retry: forwarder.Retry{MaxAttempts: 1000, Initial: 200 * time.Millisecond, Max: 2 * time.Second},
	}, briefLease, func(c *forwarder.Config) { c.Lanes = 3 })
}

// publishForAWhile publishes notifications, with pauses between them.
func (s *sharing) publishForAWhile() {
	for range 5 {
		for range 1 + s.rng.IntN(12) {
			id, key := fmt.Sprintf("%05d", s.published), []string{"", "a", "b", "c", "d", "e"}[s.rng.IntN(6)]
			if s.published++; s.rng.IntN(8) == 0 {
				s.schedule("t", key, id, time.Now().Add(time.Duration(s.rng.IntN(3000))*time.Millisecond))
			} else {
				s.append("t", key, id)
			}
		}
		time.Sleep(time.Duration(s.rng.IntN(1500)) * time.Millisecond)
	}
}

// check lets a forwarder finish without faults, and checks the result.
func (s *sharing) check(t *testing.T) {
	t.Helper()
	s.mended.Store(true)
	f := s.start()
	pass(3 * time.Minute)
	parked, stats := s.parked(), f.Stats()
	f.end()
	require.Empty(t, parked)
	require.Zero(t, stats[0].Pending)
	require.Len(t, s.took, s.published, "delivered")
	last := make(map[byte]string)
	for _, k := range s.order {
		require.Less(t, last[k[0]], k, "order of key %s in %v", k[:1], s.order)
		last[k[0]] = k
	}
}

// rounds returns the number of rounds of a random history: fewer with -short.
func rounds(n int) int {
	if testing.Short() {
		return n / 2
	}
	return n
}

// seeds returns the number of random histories of a test: fewer with -short.
func seeds(n uint64) uint64 {
	if testing.Short() {
		return 1
	}
	return n
}
