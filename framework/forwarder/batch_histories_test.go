package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/sinks"
)

// batchHistory is a random history with a sink that takes batches. Some results are for one delivery,
// some for the whole batch. An ordered sink stops a batch at the first failure.
type batchHistory struct {
	*history
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

// start starts a forwarder as for a history, with batches, fairness and a rate.
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
				h := &batchHistory{newHistory(o, seed), limits}
				for range 10 {
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
