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
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/sinks"
)

// oldHistory is a random oldHistory: notifications are published while a sink fails, is down, throttles or hangs,
// and forwarders start and stop. At the end nothing is lost, and the first deliveries of each key
// were in order.
type oldHistory struct {
	*outbox
	rng       *rand.Rand
	published int

	script                   // its mutex guards the fields below
	answers   *rand.Rand     // decides the sink's answers
	healthy   bool           // everything succeeds
	delivered map[string]int // by id
	order     []string       // "key/id" of first deliveries, without scheduled ones
}

func newOldHistory(o *outbox, seed uint64) *oldHistory {
	h := &oldHistory{
		outbox:    o,
		rng:       rand.New(rand.NewPCG(seed, 1)),
		answers:   rand.New(rand.NewPCG(seed, 2)),
		delivered: make(map[string]int),
	}
	h.script.answer = h.answer
	return h
}

func (h *oldHistory) answer(ctx context.Context, d *notification.Delivery) error {
	h.mu.Lock()
	outcome, pause, healthy := h.answers.IntN(100), h.answers.IntN(30), h.healthy
	h.mu.Unlock()
	time.Sleep(time.Duration(pause) * time.Millisecond)
	switch {
	case healthy:
	case outcome < 25:
		return errors.New("later")
	case outcome < 28:
		return sinks.Unavailable(errors.New("down"))
	case outcome < 30:
		return sinks.Throttled(time.Now().Add(100*time.Millisecond), errors.New("429"))
	case outcome < 33:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Second):
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.delivered[d.ID]++
	if h.delivered[d.ID] == 1 && d.DeliverAt.IsZero() {
		h.order = append(h.order, d.Key+"/"+d.ID)
	}
	return nil
}

func (h *oldHistory) start(lanes int) *engine {
	return h.one(forwarder.Sink{
		Sink:  &h.script,
		Retry: forwarder.Retry{MaxAttempts: 1000, Initial: 200 * time.Millisecond, Max: 2 * time.Second},
	}, func(c *forwarder.Config) {
		c.ShutdownTimeout = 500 * time.Millisecond
		c.Poll = 100 * time.Millisecond
		c.Lease = 20 * time.Second // so the membership is read every second
		c.Lanes = lanes
	})
}

func (h *oldHistory) publish(key string, scheduled bool) {
	id := fmt.Sprintf("%05d", h.published)
	h.published++
	if scheduled {
		h.schedule("t", key, id, time.Now().Add(time.Duration(h.rng.IntN(3000))*time.Millisecond))
	} else {
		h.append("t", key, id)
	}
}

// publishForAWhile publishes notifications, with pauses between them.
func (h *oldHistory) publishForAWhile() {
	for range 5 {
		for range 1 + h.rng.IntN(12) {
			h.publish([]string{"", "a", "b", "c", "d", "e"}[h.rng.IntN(6)], h.rng.IntN(8) == 0)
		}
		time.Sleep(time.Duration(h.rng.IntN(1500)) * time.Millisecond)
	}
}

// check lets a forwarder finish without faults, and checks the result.
func (h *oldHistory) check(t *testing.T, start func() *engine) {
	t.Helper()
	h.mu.Lock()
	h.healthy = true
	h.mu.Unlock()
	f := start()
	pass(3 * time.Minute)
	parked, stats := h.parked(), f.Stats()
	f.end()
	require.Empty(t, parked)
	require.Zero(t, stats[0].Pending)
	require.Len(t, h.delivered, h.published, "delivered")
	last := make(map[byte]string)
	for _, k := range h.order {
		if k[0] == '/' {
			continue
		}
		require.Less(t, last[k[0]], k, "order of key %s in %v", k[:1], h.order)
		last[k[0]] = k
	}
}

func TestRandomHistoriesLoseNothingAndKeepEachKeysOrder(t *testing.T) {
	t.Parallel()
	for seed := range seeds(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onSQLite(t, func(t *testing.T, o *outbox) {
				h := newOldHistory(o, seed)
				for range rounds(12) {
					f := h.start(1)
					h.publishForAWhile()
					switch h.rng.IntN(3) {
					case 0:
						f.end()
					case 1:
						h.loseLeases()
						f.abandon()
					case 2: // leases are lost, and acquired again by the same process
						h.loseLeases()
						h.publish("a", false)
						time.Sleep(3 * time.Second)
						f.end()
					}
				}
				h.check(t, func() *engine { return h.start(1) })
				require.Zero(t, h.overlaps, "one key was in flight twice")
			})
		})
	}
}

func TestTwoForwardersSharingLanesLoseNothing(t *testing.T) {
	t.Parallel()
	for seed := range seeds(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onPostgres(t, func(t *testing.T, o *outbox) {
				h := newOldHistory(o, seed)
				for range rounds(8) {
					f, g := h.start(3), h.start(3)
					h.publishForAWhile()
					if h.rng.IntN(2) == 0 {
						f.end()
					} else {
						h.loseLeases()
						f.abandon()
					}
					time.Sleep(2 * time.Second)
					g.end()
				}
				h.check(t, func() *engine { return h.start(3) })
			})
		})
	}
}

// rounds returns the number of rounds of a random oldHistory: fewer with -short.
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

// batchHistory is a random oldHistory with a sink that takes batches. Some results are for one delivery,
// some for the whole batch. An ordered sink stops a batch at the first failure.
type batchHistory struct {
	*oldHistory
	limits sinks.BatchLimits
}

func (h *batchHistory) BatchLimits() sinks.BatchLimits { return h.limits }

func (h *batchHistory) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	panic("a batch sink gets batches only")
}

func (h *batchHistory) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	h.mu.Lock()
	outcome, healthy := h.answers.IntN(100), h.healthy
	h.mu.Unlock()
	if !healthy {
		switch {
		case outcome < 4:
			return sinks.Failed(batch, sinks.Unavailable(errors.New("down")))
		case outcome < 8:
			return sinks.Failed(batch, sinks.Throttled(time.Now().Add(100*time.Millisecond), errors.New("429")))
		case outcome < 12:
			return nil // too few results
		case outcome < 14:
			panic("index out of range")
		}
	}
	failed := make(map[string]bool)
	results := make([]sinks.Result, len(batch))
	for i, d := range batch {
		if d.Key != "" && failed[d.Key] {
			results[i].Err = errors.New("not tried: one before it failed")
			continue
		}
		results[i].Receipt, results[i].Err = h.script.Deliver(ctx, d)
		failed[d.Key] = results[i].Err != nil
	}
	return results
}

// start starts a forwarder as for a oldHistory, with batches, fairness and a rate.
func (h *batchHistory) start(lanes int) *engine {
	return h.one(forwarder.Sink{
		Sink:     h,
		Retry:    forwarder.Retry{MaxAttempts: 1000, Initial: 200 * time.Millisecond, Max: 2 * time.Second},
		Fairness: "tenant", Rate: forwarder.Rate{Events: 300, Per: time.Second},
	}, func(c *forwarder.Config) {
		c.ShutdownTimeout = 500 * time.Millisecond
		c.Poll = 100 * time.Millisecond
		c.Lease = 20 * time.Second
		c.Lanes = lanes
	})
}

func TestRandomHistoriesOfBatchesLoseNothingAndKeepEachKeysOrder(t *testing.T) {
	t.Parallel()
	for seed := range seeds(6) {
		limits := []sinks.BatchLimits{
			{Size: 10, Ordered: true}, {Size: 10}, {Size: 4, Wait: 50 * time.Millisecond, Ordered: true},
			{Size: 100, Wait: 20 * time.Millisecond}, {Size: 2, Ordered: true}, {Size: 30, Wait: time.Second, Ordered: true},
		}[seed%6]
		t.Run(fmt.Sprintf("%d, %+v", seed, limits), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				lanes := 1
				if _, ok := o.store.(*postgres.Store); ok {
					lanes = 3
				}
				h := &batchHistory{newOldHistory(o, seed), limits}
				for range rounds(10) {
					f := h.start(lanes)
					h.publishForAWhile()
					switch h.rng.IntN(3) {
					case 0:
						f.end()
					case 1:
						h.loseLeases()
						f.abandon()
					case 2: // leases are lost, and acquired again by the same process
						h.loseLeases()
						h.publish("a", false)
						time.Sleep(3 * time.Second)
						f.end()
					}
				}
				h.check(t, func() *engine { return h.start(lanes) })
			})
		})
	}
}
