package forwarder_test

// The tests in this file change parked deliveries while a forwarder runs, or keep it from reading
// them. It must lose and repeat nothing, and keep its leases.

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

func TestARequeueOfAnEarlierDeliveryKeepsTheOrderBehindARetry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		behind []string // parked behind the retry when the dead delivery is requeued
		asked  time.Duration
	}{
		{"when followers are parked", []string{"a3"}, time.Minute},
		{"without followers", nil, time.Minute},
		{"before the next comparison of keys", nil, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				var s script
				answers := map[string]error{"dead": sinks.Permanent(errors.New("never")), "retry": errors.New("later")}
				s.answer = func(_ context.Context, d *notification.Delivery) error {
					s.mu.Lock()
					defer s.mu.Unlock()
					err := answers[d.ID]
					delete(answers, d.ID)
					return err
				}
				o.append("t", "k", append([]string{"dead", "retry"}, c.behind...)...)
				o.schedule("t", "", "alarm", time.Now().Add(c.asked)) // makes the forwarder read the parked table
				f := o.one(forwarder.Sink{Sink: &s, Retry: forwarder.Retry{Initial: 10 * time.Minute}})
				f.flush()
				require.Equal(t, []string{"dead", "retry"}, s.given())
				o.exec(`UPDATE outbox_parked SET state = 'retrying', attempt = 0, due_at = '2000-01-01T00:00:00.000000Z' WHERE state = 'dead'`)
				time.Sleep(c.asked)
				synctest.Wait()
				require.ElementsMatch(t, []string{"dead", "alarm"}, s.given())
				o.append("t", "k", "a4")
				f.flush()
				require.Empty(t, s.given())
				time.Sleep(time.Hour)
				synctest.Wait()
				given := s.given()
				f.end()
				require.Equal(t, append(append([]string{"retry"}, c.behind...), "a4"), given)
				require.Empty(t, o.parked())
			})
		})
	}
}

func TestChangesToParkedDeliveriesAreNoticed(t *testing.T) {
	t.Parallel()
	bad := func(s *script) func(context.Context, *notification.Delivery) error {
		var once sync.Map
		return func(_ context.Context, d *notification.Delivery) error {
			if _, again := once.LoadOrStore(d.ID, true); !again && strings.HasPrefix(d.ID, "dead") {
				return sinks.Permanent(errors.New("no"))
			}
			return nil
		}
	}
	t.Run("a requeued delivery is retried", func(t *testing.T) {
		onSQLite(t, func(t *testing.T, o *outbox) {
			var s script
			s.answer = bad(&s)
			o.append("t", "k", "dead1", "a2")
			f := o.one(forwarder.Sink{Sink: &s, OnDead: forwarder.OnDeadHalt}, func(c *forwarder.Config) {
				c.Lease = 15 * time.Second
				c.Store = &hooked{appendable: o.store, db: o.db}
			})
			f.flush()
			o.exec(`UPDATE outbox_parked SET state = 'retrying', attempt = 0, due_at = '2000-01-01T00:00:00.000000Z' WHERE state = 'dead'`)
			time.Sleep(time.Hour)
			synctest.Wait()
			given := s.given()
			f.end()
			require.Equal(t, []string{"dead1", "dead1", "a2"}, given)
		})
	})
	t.Run("a discarded head frees its key", func(t *testing.T) {
		onSQLite(t, func(t *testing.T, o *outbox) {
			var s script
			s.answer = bad(&s)
			o.append("t", "k", "dead1", "a2")
			f := o.one(forwarder.Sink{Sink: &s, OnDead: forwarder.OnDeadHalt}, func(c *forwarder.Config) {
				c.Lease = 15 * time.Second
				c.Store = &hooked{appendable: o.store, db: o.db}
			})
			f.flush()
			o.exec(`DELETE FROM outbox_parked WHERE state = 'dead'`)
			time.Sleep(time.Hour)
			o.append("t", "k", "a3")
			f.flush()
			given := s.given()
			f.end()
			require.Equal(t, []string{"dead1", "a2", "a3"}, given)
		})
	})
	t.Run("three requeued deliveries of one key", func(t *testing.T) {
		onSQLite(t, func(t *testing.T, o *outbox) {
			var s script
			first := make(map[string]int)
			s.answer = func(_ context.Context, d *notification.Delivery) error {
				s.mu.Lock()
				first[d.ID]++
				n := first[d.ID]
				s.mu.Unlock()
				switch {
				case strings.HasPrefix(d.ID, "dead") && n == 1:
					return sinks.Permanent(errors.New("no"))
				case d.ID == "dead3" && n == 2:
					time.Sleep(time.Second)
					return errors.New("not now")
				}
				return nil
			}
			o.append("t", "k", "dead1", "dead2", "dead3")
			f := o.one(forwarder.Sink{Sink: &s, Retry: forwarder.Retry{Initial: 10 * time.Minute}})
			f.flush()
			require.Equal(t, []string{"dead1", "dead2", "dead3"}, s.given())
			o.schedule("t", "", "alarm", time.Now().Add(time.Minute)) // makes the forwarder read the parked table
			f.flush()
			o.exec(`UPDATE outbox_parked SET state = 'retrying', attempt = 0, due_at = '2000-01-01T00:00:00.000000Z' WHERE state = 'dead'`)
			time.Sleep(time.Minute + 500*time.Millisecond) // dead3 is in flight by now
			o.append("t", "k", "a4")                       // a4 waits behind it
			f.flush()
			time.Sleep(2 * time.Second) // dead3 failed
			synctest.Wait()
			o.append("t", "k", "a5")
			f.flush()
			s.given()
			time.Sleep(time.Hour)
			synctest.Wait()
			given := s.given()
			f.end()
			require.Equal(t, []string{"dead3", "a4", "a5"}, given)
		})
	})
	t.Run("a scheduled delivery behind a discarded head", func(t *testing.T) {
		onSQLite(t, func(t *testing.T, o *outbox) {
			var s script
			s.answer = func(_ context.Context, d *notification.Delivery) error {
				if d.ID == "head" {
					return errors.New("later")
				}
				return nil
			}
			var dues atomic.Int64
			ctx := make(chan struct{})
			var once sync.Once
			h := &hooked{appendable: o.store}
			h.due = func() {
				if dues.Add(1) > 5000 {
					once.Do(func() { close(ctx) })
					time.Sleep(time.Hour) // let the test end
				}
			}
			f := o.one(forwarder.Sink{Sink: &s, Retry: forwarder.Retry{Initial: 10 * time.Hour, Max: 20 * time.Hour}}, func(c *forwarder.Config) { c.Store = h })
			o.append("t", "k", "head")
			o.schedule("t", "k", "later", time.Now().Add(time.Minute))
			f.flush()
			o.exec(`DELETE FROM outbox_parked WHERE state = 'retrying'`)
			before := dues.Load()
			time.Sleep(61 * time.Second)
			n := dues.Load() - before
			f.end()
			require.Less(t, n, int64(100))
		})
	})
}

func TestAnUnreadableParkedTableIsReadAtALimitedRate(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, o *outbox) {
		var s script
		s.answer = func(_ context.Context, d *notification.Delivery) error {
			if d.ID == "a1" && d.Attempt == 1 {
				return errors.New("later")
			}
			return nil
		}
		var asked, written atomic.Int64
		var since time.Time
		h := &hooked{appendable: o.store}
		h.followers = func() error {
			if since.IsZero() {
				since = time.Now()
			}
			if asked.Add(1) > 2000 || time.Since(since) > time.Minute {
				return nil
			}
			return errors.New("canceling statement due to statement timeout")
		}
		h.checkpoint = func(_ context.Context, _ store.Checkpoint, next func() error) error { written.Add(1); return next() }
		f := o.one(forwarder.Sink{Sink: &s}, func(c *forwarder.Config) { c.Store = h })
		o.append("t", "k", "a1", "a2")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		f.end()
		require.Less(t, asked.Load(), int64(200))
	})
}

func TestAParkedTableThatCannotBeReadDoesNotCostTheLease(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, o *outbox) {
		var s script
		s.answer = func(_ context.Context, d *notification.Delivery) error {
			if d.Attempt == 1 && d.ID == "a1" {
				return errors.New("later")
			}
			return nil
		}
		const lease = 2 * time.Second
		h := &hooked{appendable: o.store}
		h.followers = func() error { return errors.New("canceling statement due to statement timeout") }
		var longest time.Duration
		var renewed time.Time
		h.checkpoint = func(_ context.Context, _ store.Checkpoint, next func() error) error {
			if !renewed.IsZero() {
				longest = max(longest, time.Since(renewed))
			}
			renewed = time.Now()
			return next()
		}
		f := o.one(forwarder.Sink{Sink: &s}, func(c *forwarder.Config) { c.Store, c.Lease = h, lease })
		o.append("t", "k", "a1", "a2")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		f.end()
		require.Less(t, longest, lease)
	})
}
