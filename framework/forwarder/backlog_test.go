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
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// takesTime waits for d, or until the context ends.
func takesTime(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// hookTally counts the deliveries that a hook has saved.
type hookTally struct {
	mu     sync.Mutex
	counts hookCounts
}

type hookCounts struct {
	calls, most int
	order       []string // of the identifiers that were saved
}

func (h *hookTally) called(all []forwarder.Delivered) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.calls++
	h.counts.most = max(h.counts.most, len(all))
}

func (h *hookTally) saved(all []forwarder.Delivered) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range all {
		h.counts.order = append(h.counts.order, d.ID)
	}
}

func (h *hookTally) now() hookCounts {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.counts
	c.order = slices.Clone(c.order)
	return c
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
				var tally hookTally
				s := &script{answer: func(ctx context.Context, _ *notification.Delivery) error { return takesTime(ctx, time.Millisecond) }}
				f := o.one(forwarder.Sink{Sink: s, Hooks: forwarder.Hooks{Delivered: func(ctx context.Context, _ *sql.Tx, all []forwarder.Delivered) error {
					tally.called(all)
					for range all {
						if err := takesTime(ctx, time.Millisecond); err != nil {
							return err
						}
					}
					tally.saved(all)
					return nil
				}}}, func(c *forwarder.Config) { c.Lease = lease })
				f.Wake()
				time.Sleep(time.Minute)
				synctest.Wait()
				receipts := value[int](o, `SELECT count(*) FROM outbox_receipts`)
				given := len(s.given())
				f.end()
				require.Equal(t, n, receipts, "everything is settled")
				counts := tally.now()
				slices.Sort(counts.order)
				require.Equal(t, slices.Concat(numbered("a", n/3), numbered("b", n/3), numbered("c", n/3)), counts.order, "each once")
				require.Equal(t, n, given, "nothing is delivered again")
				require.LessOrEqual(t, counts.most, 1000)
				require.Less(t, counts.calls, 100)
			})
		})
	}
}

func TestADeliveryThatAHookRefusesDelaysNoOther(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, o *outbox) {
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
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.Equal(t, n-1, value[int](o, `SELECT count(*) FROM outbox_receipts`), "all others are settled")
		counts := tally.now()
		require.Equal(t, slices.Delete(slices.Clone(ids), poison, poison+1), counts.order)
		require.Less(t, counts.calls, 50)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, n, value[int](o, `SELECT count(*) FROM outbox_receipts`))
		counts = tally.now()
		require.Equal(t, ids[poison], counts.order[n-1], "each once")
		require.Equal(t, ids, s.given())
		require.LessOrEqual(t, counts.most, 1000)
		f.end()
	})
}

func TestDueDeliveriesDoNotWaitBehindChainsOfBlockedOnes(t *testing.T) {
	onEachStoreIfLong(t, func(t *testing.T, o *outbox) {
		const keys, each = 8, 600
		for k := range keys {
			o.append("t", fmt.Sprint("key", k), numbered(fmt.Sprintf("k%d-", k), each)...)
		}
		var mu sync.Mutex
		tries := make(map[string][]time.Time)
		s := &script{answer: func(ctx context.Context, d *notification.Delivery) error {
			mu.Lock()
			tries[d.ID] = append(tries[d.ID], time.Now())
			first := len(tries[d.ID]) == 1
			mu.Unlock()
			if err := takesTime(ctx, 20*time.Millisecond); err != nil {
				return err
			}
			if first && (d.ID == "retry" || strings.HasSuffix(d.ID, "-0000")) {
				return errors.New("once")
			}
			return nil
		}}
		f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: time.Second}, Breaker: forwarder.Breaker{Off: true}})
		f.Wake()
		time.Sleep(3 * time.Second)
		due := time.Now().Add(2 * time.Second)
		o.schedule("t", "", "scheduled", due)
		o.append("t", "", "retry")
		f.Wake()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		mu.Lock()
		scheduled, retried := tries["scheduled"], tries["retry"]
		mu.Unlock()
		require.Greater(t, f.Stats()[0].Pending, keys, "chains are still in progress")
		require.Len(t, scheduled, 1)
		require.WithinDuration(t, due, scheduled[0], time.Second)
		require.Len(t, retried, 2)
		require.WithinDuration(t, retried[0].Add(time.Second), retried[1], time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, o.parked())
		require.Equal(t, int64(keys*each+2), f.Stats()[0].Delivered)
		f.end()
	})
}

// TestADeliveryThatHangsDoesNotStopItsLane is not parallel, because it measures the heap.
func TestADeliveryThatHangsDoesNotStopItsLane(t *testing.T) {
	onSQLite(t, func(t *testing.T, o *outbox) {
		const others = 3*window + 2000
		payload := []byte(`"` + strings.Repeat("x", 1000) + `"`)
		o.append("t", "", "hangs")
		all := numbered("n", others)
		for chunk := range slices.Chunk(all, 2000) {
			rows := make([]notification.Envelope, len(chunk))
			for i, id := range chunk {
				rows[i] = notification.Envelope{ID: id, Type: "t", Payload: payload}
			}
			o.insert(rows...)
		}
		s := &script{answer: func(ctx context.Context, d *notification.Delivery) error {
			if d.ID == "hangs" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}
		before := heap()
		f := o.one(forwarder.Sink{Sink: s, Timeout: 10 * time.Hour}, func(c *forwarder.Config) {
			c.Memory = 16 << 20
			c.ShutdownTimeout = time.Second
		})
		f.Wake()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, int64(others), f.Stats()[0].Delivered)
		require.Equal(t, 1, f.Stats()[0].Pending)
		require.Equal(t, fmt.Sprintf("2-%d", others+1), value[string](o, `SELECT settled FROM outbox_cursors WHERE sink = 'sink'`), "one range")
		given := s.given()
		require.Len(t, given, others+1)
		clear(given)
		grown := heap() - before
		require.Less(t, grown, int64(25<<20), "of 50 MB of payloads, only a page or two are in memory")

		// This is the state after a crash.
		o.exec(`UPDATE outbox_cursors SET owner = NULL, epoch = epoch + 1 WHERE owner IS NOT NULL`)
		f.abandon()
		s.given()
		s.answer = nil
		o.append("t", "", "last")
		f = o.one(forwarder.Sink{Sink: s})
		f.flush()
		require.ElementsMatch(t, []string{"hangs", "last"}, s.given(), "no settled delivery is repeated")
		require.Equal(t, "", value[string](o, `SELECT settled FROM outbox_cursors WHERE sink = 'sink'`))
		f.end()
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
	t.Parallel()
	onSQLite(t, func(t *testing.T, o *outbox) {
		const others = window + 4000
		o.append("t", "k", "hangs", "behind")
		for chunk := range slices.Chunk(numbered("n", others), 2000) {
			rows := make([]notification.Envelope, len(chunk))
			for i, id := range chunk {
				rows[i] = notification.Envelope{ID: id, Type: "t", Key: fmt.Sprint("key", i%50)}
			}
			o.insert(rows...)
		}
		var given sync.Map
		hangs := true
		s := sinks.Func(func(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			if d.ID == "hangs" && hangs {
				<-ctx.Done()
				return "", ctx.Err()
			}
			_, again := given.LoadOrStore(d.ID, true)
			require.False(t, again, d.ID)
			return "", nil
		})
		f := o.one(forwarder.Sink{Sink: s, Timeout: time.Hour}, func(c *forwarder.Config) { c.ShutdownTimeout = time.Second })
		f.Wake()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, int64(others), f.Stats()[0].Delivered)
		f.end()
		hangs = false
		f = o.one(forwarder.Sink{Sink: s})
		f.flush()
		require.Equal(t, int64(2), f.Stats()[0].Delivered)
		f.end()
	})
}
