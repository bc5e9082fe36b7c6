package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
)

// hookTally counts the deliveries that a hook has saved.
type hookTally struct {
	mu          sync.Mutex
	calls, most int
	order       []string // of the identifiers that were saved
}

func (h *hookTally) called(all []forwarder.Delivered) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	h.most = max(h.most, len(all))
}

func (h *hookTally) saved(all []forwarder.Delivered) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range all {
		h.order = append(h.order, d.ID)
	}
}

// figures returns what was counted so far.
func (h *hookTally) figures() (calls, most int, order []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls, h.most, slices.Clone(h.order)
}

func TestAHookThatTakesAMillisecondPerDeliverySettlesABacklog(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three backlogs of 6,000 rows")
	}
	for name, lease := range map[string]time.Duration{
		"a hook has time for a thousand":      15 * time.Second,
		"a hook has time for just a thousand": 3 * time.Second,
		"a hook has time for a third of them": time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			onPostgres(t, func(t *testing.T, o *outbox) {
				const n = 6000
				for _, prefix := range []string{"a", "b", "c"} {
					o.append("t", "", numbered(prefix, n/3)...)
				}
				o.exec(`CREATE TABLE hooked (id text)`)
				var tally hookTally
				s := &script{answer: takes(time.Millisecond)}
				f := o.one(forwarder.Sink{Sink: s, Hooks: forwarder.Hooks{Delivered: func(ctx context.Context, tx *sql.Tx, all []forwarder.Delivered) error {
					tally.called(all)
					for range all {
						if err := takesTime(ctx, time.Millisecond); err != nil {
							return err
						}
					}
					ids := make([]string, len(all))
					for i, d := range all {
						ids[i] = d.ID
					}
					_, err := tx.ExecContext(ctx, `INSERT INTO hooked SELECT unnest($1::text[])`, pq.Array(ids))
					return err
				}}}, leased(lease))
				f.Wake()
				pass(time.Minute)
				receipts := o.receipts()
				given := len(s.given())
				f.end()
				var hooked pq.StringArray
				require.NoError(t, o.db.QueryRowContext(t.Context(), `SELECT array_agg(id ORDER BY id COLLATE "C") FROM hooked`).Scan(&hooked))
				require.Equal(t, n, receipts, "everything is settled")
				require.EqualValues(t, slices.Concat(numbered("a", n/3), numbered("b", n/3), numbered("c", n/3)), hooked, "each once")
				require.Equal(t, n, given, "nothing is delivered again")
				require.LessOrEqual(t, tally.most, 1000)
				require.Less(t, tally.calls, 100)
			})
		})
	}
}

func TestADeliveryThatAHookRefusesDelaysNoOther(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		const n, poison = 3000, 1234
		ids := numbered("n", n)
		o.append("t", "", ids...)
		var tally hookTally
		began := time.Now()
		s := &script{}
		f := o.one(forwarder.Sink{
			Sink: s, Parallelism: forwarder.Parallelism{Threshold: 1}, // so that deliveries end in the order of the log
			Hooks: forwarder.Hooks{Delivered: func(_ context.Context, _ *sql.Tx, all []forwarder.Delivered) error {
				tally.called(all)
				if time.Since(began) < time.Minute && slices.ContainsFunc(all, func(d forwarder.Delivered) bool { return d.ID == ids[poison] }) {
					return errors.New("constraint")
				}
				tally.saved(all)
				return nil
			}},
		})
		f.Wake()
		pass(30 * time.Second)
		require.Equal(t, n-1, o.receipts(), "all others are settled")
		calls, _, order := tally.figures()
		require.Equal(t, slices.Delete(slices.Clone(ids), poison, poison+1), order)
		require.Less(t, calls, 50)
		pass(2 * time.Minute)
		require.Equal(t, n, o.receipts())
		_, most, order := tally.figures()
		require.Equal(t, ids[poison], order[n-1], "each once")
		require.Equal(t, ids, s.given())
		require.LessOrEqual(t, most, 1000)
	})
}

func TestDueDeliveriesDoNotWaitBehindChainsOfBlockedOnes(t *testing.T) {
	onEachStoreIfLong(t, func(t *testing.T, o *outbox) {
		const keys, each = 8, 600
		for k := range keys {
			o.append("t", fmt.Sprint("key", k), numbered(fmt.Sprintf("k%d-", k), each)...)
		}
		s := &script{answer: either(takes(20*time.Millisecond), func(_ context.Context, d *notification.Delivery) error {
			if d.Attempt == 1 && (d.ID == "retry" || strings.HasSuffix(d.ID, "-0000")) {
				return errors.New("once")
			}
			return nil
		})}
		f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: time.Second}, Breaker: forwarder.Breaker{Off: true}})
		f.Wake()
		time.Sleep(3 * time.Second)
		due := time.Now().Add(2 * time.Second)
		o.schedule("t", "", "scheduled", due)
		o.append("t", "", "retry")
		f.Wake()
		pass(5 * time.Second)
		scheduled, retried := s.begun("scheduled"), s.begun("retry")
		require.Greater(t, f.Stats()[0].Pending, keys, "chains are still in progress")
		require.Len(t, scheduled, 1)
		require.WithinDuration(t, due, scheduled[0], time.Second)
		require.Len(t, retried, 2)
		require.WithinDuration(t, retried[0].Add(time.Second), retried[1], time.Second)
		pass(time.Minute)
		require.Empty(t, o.parked())
		require.Equal(t, int64(keys*each+2), f.Stats()[0].Delivered)
	})
}

// TestADeliveryThatHangsDoesNotStopItsLane is not parallel, because it measures the heap.
func TestADeliveryThatHangsDoesNotStopItsLane(t *testing.T) {
	onSQLite(t, func(t *testing.T, o *outbox) {
		const others = 2 * window
		o.append("t", "", "hangs")
		o.insertMany(others, func(i int) notification.Envelope { return notification.Envelope{Payload: kilobyte} })
		s := &script{answer: hangs("hangs")}
		before := heap()
		f := o.one(forwarder.Sink{Sink: s, Timeout: 10 * time.Hour}, func(c *forwarder.Config) {
			c.Memory = 8 << 20
			c.ShutdownTimeout = time.Second
		})
		f.Wake()
		pass(time.Minute)
		require.Equal(t, int64(others), f.Stats()[0].Delivered)
		require.Equal(t, 1, f.Stats()[0].Pending)
		require.Equal(t, fmt.Sprintf("2-%d", others+1), o.settled(), "one range")
		given := s.given()
		require.Len(t, given, others+1)
		clear(given)
		grown := heap() - before
		require.Less(t, grown, int64(20<<20), "of 32 MB of payloads, only a page or two are in memory")

		// This is the state after a crash.
		o.loseLeases()
		f.abandon()
		s.given()
		s.mended.Store(true)
		o.append("t", "", "last")
		f = o.one(forwarder.Sink{Sink: s})
		f.flush()
		require.ElementsMatch(t, []string{"hangs", "last"}, s.given(), "no settled delivery is repeated")
		require.Equal(t, "", o.settled())
	})
}

// heap returns the size of the heap in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestAKeyWhoseHeadHangsDoesNotStopOtherKeys(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		const others = window + 4000
		o.append("t", "k", "hangs", "behind")
		o.insertMany(others, func(i int) notification.Envelope { return notification.Envelope{Key: fmt.Sprint("key", i%50)} })
		s := &script{answer: hangs("hangs")}
		f := o.one(forwarder.Sink{Sink: s, Timeout: time.Hour}, stopsWithin(time.Second))
		f.Wake()
		pass(time.Minute)
		require.Equal(t, int64(others), f.Stats()[0].Delivered)
		f.end()
		s.mended.Store(true)
		f = o.one(forwarder.Sink{Sink: s})
		f.flush()
		require.Equal(t, int64(2), f.Stats()[0].Delivered)
		require.Len(t, s.given(), 1+others+2, "nothing else is repeated")
	})
}

// TestLittleMemoryStopsNoLane has many sinks, each with several times the pending deliveries that fit
// into memory for all sinks together. In all sinks except one a delivery hangs.
func TestLittleMemoryStopsNoLane(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		const n, page = 5000, 2000
		o.insertMany(n, func(int) notification.Envelope { return notification.Envelope{Payload: kilobyte} })
		released := make(chan struct{})
		names := numbered("s", 6)
		to := make(map[string]forwarder.Sink)
		for i, name := range names {
			to[name] = forwarder.Sink{Timeout: time.Hour, Parallelism: forwarder.Parallelism{Threshold: 64}, Sink: &script{answer: func(ctx context.Context, d *notification.Delivery) error {
				if d.ID == "n0000" && i > 0 {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-released:
					}
				}
				return takesTime(ctx, 20*time.Millisecond)
			}}}
		}
		f := o.start(to, route.Routes{"*": route.To(names...)}, func(c *forwarder.Config) {
			c.Memory = 1 << 20
			c.Unrouted = forwarder.UnroutedIgnore
		})
		f.Wake()
		for range 10 {
			pass(time.Second)
			for _, s := range f.Stats() {
				require.LessOrEqual(t, s.Pending, page, "at most one page of each lane")
			}
		}
		for i, s := range f.Stats() {
			if i == 0 {
				require.Equal(t, int64(n), s.Delivered, "the deliveries that hang do not stop this sink")
				continue
			}
			require.GreaterOrEqual(t, s.Delivered, int64(page-1), "the rest of its page is delivered")
		}
		close(released)
		pass(time.Minute)
		for _, s := range f.Stats() {
			require.Equal(t, int64(n), s.Delivered, s.Sink)
			require.Zero(t, s.Pending)
		}
	})
}
