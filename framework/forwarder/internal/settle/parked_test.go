package settle_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/forwarder/internal/lanetest"
	"github.com/waybill-go/waybill/framework/forwarder/internal/settle"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

func TestRestoringEndsIfTheDatabaseDoesNotAnswer(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		b.OnHeldKeys = func(ctx context.Context, _ string) ([]store.HeldKey, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c, _ := begin(t, b)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.ErrorIs(t, c.Restore(ctx), context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(began), lanetest.TTL/2)
	})
}

func TestALeaseThatParkedDeliveriesShowToBeLostEndsTheWork(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		member := timed(1, "member", "k", store.StateCollecting, 1)
		member.Group = "k"
		require.NoError(t, b.Checkpoint(t.Context(), store.Checkpoint{Lease: b.Lease, TTL: lanetest.TTL, Collect: []store.Parked{member}, CollectTerms: store.CollectTerms{Wait: time.Nanosecond, MaxWait: time.Nanosecond}}))
		c, _ := begin(t, b)
		require.NoError(t, b.Release(t.Context(), b.Lease))
		_, err := b.Acquire(t.Context(), b.Lease.Lane, "another forwarder", time.Hour)
		require.NoError(t, err)
		began := time.Now()
		require.ErrorIs(t, c.Run(t.Context(), t.Context()), store.ErrLeaseLost)
		require.Less(t, time.Since(began), lanetest.TTL/3, "before the lease is renewed")
	})
}

// timed returns a parked delivery that fell due a moment ago.
func timed(offset int64, id, key string, state store.State, size int) store.Parked {
	due := time.Now().Add(-time.Millisecond)
	return store.Parked{
		Envelope: notification.Envelope{Offset: offset, ID: id, Type: "t", Key: key, OccurredOn: due, Payload: make([]byte, size)},
		State:    state, DueAt: due, FirstParkedAt: due,
	}
}

// countDue counts the queries for due deliveries.
func countDue(b *lanetest.Bench) *atomic.Int64 {
	asked := new(atomic.Int64)
	b.OnDue = func(ctx context.Context) {
		if asked.Add(1) > 1000 {
			<-ctx.Done() // a busy loop would stop the fake time
		}
	}
	return asked
}

const large = 9 << 20 // fills one answer of the table alone

func TestALargeDeliveryInProgressDoesNotHideLaterDueOnes(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{"delivered": nil, "retried": errors.New("once")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
				settings := b.Dispatcher.Settings()
				settings.Parallelism.Threshold = 16
				b.Dispatcher.Adjust(settings)
				asked := countDue(b)
				b.Answer = func(ctx context.Context, d *notification.Delivery) error {
					if d.ID == "large" && d.Attempt == 1 {
						return errors.Join(answer, lanetest.Sleep(ctx, 10*time.Second))
					}
					return nil
				}
				require.NoError(t, b.Checkpoint(t.Context(), store.Checkpoint{Lease: b.Lease, TTL: lanetest.TTL, Park: []store.Parked{
					timed(1, "large", "", store.StateRetrying, large), timed(2, "behind", "", store.StateRetrying, 2)}}))
				c, _ := begin(t, b)
				run(t, c)
				time.Sleep(time.Second)
				require.ElementsMatch(t, []string{"large", "behind"}, b.Given(), "both are in flight")
				time.Sleep(15 * time.Second)
				synctest.Wait()
				require.Less(t, asked.Load(), int64(10))
				require.Zero(t, parkedRows(t, b))
			})
		})
	}
}

// All due deliveries in the table's answer are refused here, because their key is blocked. The answer
// contains neither the due deliveries after them nor when those are due.
func TestDueDeliveriesAfterABlockedOneAreReadEachSecond(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		asked := countDue(b)
		b.OnHeldKeys = func(context.Context, string) ([]store.HeldKey, error) {
			return []store.HeldKey{{Key: "k", Head: true}}, nil
		}
		c, _ := begin(t, b)
		require.NoError(t, c.Restore(t.Context()))
		require.NoError(t, b.Checkpoint(t.Context(), store.Checkpoint{Lease: b.Lease, TTL: lanetest.TTL, Park: []store.Parked{
			timed(2, "waits", "k", store.StateScheduled, large), timed(3, "behind", "", store.StateRetrying, 2)}}))
		run(t, c)
		time.Sleep(10*time.Second + time.Millisecond)
		require.Empty(t, b.Given())
		require.InDelta(t, 11, asked.Load(), 1)
	})
}

func parkedRows(t *testing.T, b *lanetest.Bench) (n int) {
	t.Helper()
	require.NoError(t, b.DB.QueryRowContext(t.Context(), `SELECT count(*) FROM outbox_parked`).Scan(&n))
	return n
}

func TestAComparisonRequestedDuringAnotherFollowsIt(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		first := make([]store.HeldKey, 10_000) // one full part
		for i := range first {
			first[i] = store.HeldKey{Key: fmt.Sprintf("k%04d", i), Head: true}
		}
		revised := make(chan struct{}, 1)
		var parts []string // the key after which each part began
		b.OnHeldKeys = func(_ context.Context, after string) ([]store.HeldKey, error) {
			parts = append(parts, after)
			switch {
			case len(parts) == 2:
				return nil, errors.New("reset") // interrupts the comparison
			case after == "":
				return first, nil
			}
			return nil, nil
		}
		c, _ := begin(t, b, func(c *settle.Config) { c.Revised = revised })
		run(t, c)
		revised <- struct{}{}
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{"", "k9999"}, parts)
		revised <- struct{}{}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"", "k9999", "k9999", "", "k9999"}, parts)
	})
}

// publishing is a store in whose log a notification of a key is read while the table is asked for the key.
type publishing struct {
	*lanetest.Bench
	once    sync.Once
	publish func()
}

func (p *publishing) Followers(ctx context.Context, lane store.Lane, keys []string, halt bool, limit int) ([]store.Parked, int, error) {
	parked, answered, err := p.Bench.Followers(ctx, lane, keys, halt, limit)
	p.once.Do(p.publish)
	return parked, answered, err
}

// The answer is older than what was parked meanwhile. So the table is asked again after the next checkpoint, and not
// at the next comparison, half a minute later.
func TestAKeyOfWhichSomethingIsParkedDuringTheAnswerIsAskedForAgain(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		c, l := (*settle.Checkpointer)(nil), (*dispatch.Lane)(nil)
		s := &publishing{Bench: b, publish: func() {
			l.Add(store.Page{Envelopes: []notification.Envelope{{Offset: 2, ID: "second", Type: "t", Key: "k", OccurredOn: time.Now()}}})
		}}
		require.NoError(t, b.Checkpoint(t.Context(), store.Checkpoint{Lease: b.Lease, TTL: lanetest.TTL,
			Park: []store.Parked{timed(1, "first", "k", store.StateRetrying, 2)}}))
		c, l = begin(t, b, func(c *settle.Config) { c.Store = s })
		require.NoError(t, c.Restore(t.Context()))
		run(t, c)
		time.Sleep(3 * time.Second)
		require.Equal(t, []string{"first", "second"}, b.Given())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, parkedRows(t, b))
	})
}
