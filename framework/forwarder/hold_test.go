package forwarder_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
)

// fullDisk is a store whose checkpoints fail for the configured sinks. A checkpoint that only renews
// a lease succeeds, unless renewing is configured to fail too.
type fullDisk struct {
	*hooked
	fails, renewingFails atomic.Bool
	first                atomic.Int64 // when the first checkpoint failed, in the unit of UnixNano
}

func fullDiskFor(o *outbox, sinks ...string) *fullDisk {
	s := &fullDisk{hooked: &hooked{appendable: o.store, db: o.db}}
	s.checkpoint = func(_ context.Context, c store.Checkpoint, next func() error) error {
		if !slices.Contains(sinks, c.Lease.Lane.Sink) || !s.fails.Load() || c.Number == 0 && !s.renewingFails.Load() {
			return next()
		}
		s.first.CompareAndSwap(0, time.Now().UnixNano())
		return errors.New("the disk is full")
	}
	return s
}

func TestNoDeliveryBeginsWhileCheckpointsFail(t *testing.T) {
	t.Parallel()
	const threshold, n = 4, 2000
	for name, keys := range map[string][]string{"without keys": {""}, "with keys": {"a", "b", "c", "d", "e", "f", "g", "h"}} {
		t.Run(name, func(t *testing.T) {
			onSQLite(t, func(t *testing.T, o *outbox) {
				db := fullDiskFor(o, "sink")
				var after, others atomic.Int64
				s := &script{answer: func(ctx context.Context, _ *notification.Delivery) error {
					if first := db.first.Load(); first != 0 && db.fails.Load() && time.Now().UnixNano() > first {
						after.Add(1)
					}
					return takesTime(ctx, 10*time.Millisecond)
				}}
				other := &script{answer: func(context.Context, *notification.Delivery) error { others.Add(1); return nil }}
				f := o.start(map[string]forwarder.Sink{
					"sink":  {Sink: s, Parallelism: forwarder.Parallelism{Threshold: threshold}},
					"other": {Sink: other},
				}, route.Routes{"*": route.To("sink", "other")}, over(db), leased(15*time.Second))
				rows := make([]notification.Envelope, n)
				for i, id := range numbered("n", n) {
					rows[i] = notification.Envelope{ID: id, Type: "t", Key: keys[i%len(keys)]}
				}
				o.insert(rows...)
				f.flush()
				pass(time.Second)
				require.Positive(t, value[int](o, `SELECT count(*) FROM outbox_receipts WHERE sink = 'sink'`), "the sink continues")
				db.fails.Store(true)
				pass(time.Minute)
				require.NotZero(t, db.first.Load())
				require.LessOrEqual(t, after.Load(), int64(threshold))
				require.Equal(t, int64(n), others.Load(), "the other sink continues")
				held := len(s.given())
				require.Less(t, held, n/2)

				db.fails.Store(false)
				pass(time.Minute)
				require.Equal(t, n, held+len(s.given()), "each once")
				require.Equal(t, n, value[int](o, `SELECT count(*) FROM outbox_receipts WHERE sink = 'sink'`))
				require.Zero(t, s.overlaps)
			})
		})
	}
}

func TestNoDeliveryBeginsWhileACheckpointHangs(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		const threshold, n = 4, 2000
		o.append("t", "", numbered("n", n)...)
		db := &hooked{appendable: o.store, db: o.db}
		var hangs atomic.Bool
		db.checkpoint = func(ctx context.Context, c store.Checkpoint, next func() error) error {
			if hangs.Load() && c.Lease.Lane.Sink == "sink" {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(5 * time.Second):
				}
			}
			return next()
		}
		s := &script{answer: takes(10 * time.Millisecond)}
		f := o.one(forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: threshold}}, over(db), leased(15*time.Second))
		f.Wake()
		time.Sleep(time.Second)
		s.given()
		hangs.Store(true)
		pass(4 * time.Second)
		// A checkpoint counts as hanging after 250 ms, and up to another 250 ms can pass before the
		// first one begins to hang.
		require.Less(t, len(s.given()), threshold*(2*250/10+2))
		pass(time.Minute)
		require.Equal(t, int64(n), f.Stats()[0].Delivered, "each checkpoint that succeeds lets some deliveries begin")
	})
}

func TestTheNextLeaseDeliversAlthoughTheLastOneWasSuspended(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		const n = 400
		o.append("t", "", numbered("n", n)...)
		db := fullDiskFor(o, "sink")
		db.renewingFails.Store(true)
		s := &script{answer: takes(10 * time.Millisecond)}
		f := o.one(forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: 4}}, func(c *forwarder.Config) {
			c.Store = db
			c.Lease = 5 * time.Second
		})
		f.Wake()
		time.Sleep(100 * time.Millisecond)
		db.fails.Store(true)
		pass(30 * time.Second) // leases expire, and new ones are acquired
		require.Less(t, f.Stats()[0].Delivered, int64(n))
		db.fails.Store(false)
		pass(time.Minute)
		require.Len(t, s.given(), n, "each once, and all of them")
		require.Equal(t, n, o.receipts())
		require.Zero(t, f.Stats()[0].Pending)
		require.Zero(t, f.Stats()[0].InFlight)
	})
}
