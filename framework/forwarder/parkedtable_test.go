package forwarder_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// The tests in this file change parked deliveries while a forwarder runs, or keep it from reading
// them. It must lose and repeat nothing, and keep its leases.

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
				s := &script{answer: either(failsOnce(sinks.Permanent(errors.New("never")), "dead"), failsOnce(errors.New("later"), "retry"))}
				o.append("t", "k", append([]string{"dead", "retry"}, c.behind...)...)
				o.schedule("t", "", "alarm", time.Now().Add(c.asked)) // makes the forwarder read the parked table
				f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: 10 * time.Minute}})
				f.flush()
				require.Equal(t, []string{"dead", "retry"}, s.given())
				o.putBack(store.StateDead)
				pass(c.asked)
				require.ElementsMatch(t, []string{"dead", "alarm"}, s.given())
				f.publish("t", "k", "a4")
				require.Empty(t, s.given())
				pass(time.Hour)
				require.Equal(t, append(append([]string{"retry"}, c.behind...), "a4"), s.given())
				require.Empty(t, o.parked())
			})
		})
	}
}

func TestChangesToParkedDeliveriesAreNoticed(t *testing.T) {
	t.Parallel()
	t.Run("three requeued deliveries of one key", func(t *testing.T) {
		onSQLite(t, func(t *testing.T, o *outbox) {
			s := &script{}
			s.answer = either(failsOnce(sinks.Permanent(errors.New("no")), "dead1", "dead2", "dead3"), func(ctx context.Context, d *notification.Delivery) error {
				if d.ID == "dead3" && len(s.begun("dead3")) == 2 {
					return errors.Join(takesTime(ctx, time.Second), errors.New("not now"))
				}
				return nil
			})
			o.append("t", "k", "dead1", "dead2", "dead3")
			f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: 10 * time.Minute}})
			f.flush()
			require.Equal(t, []string{"dead1", "dead2", "dead3"}, s.given())
			o.schedule("t", "", "alarm", time.Now().Add(time.Minute)) // makes the forwarder read the parked table
			f.flush()
			o.putBack(store.StateDead)
			time.Sleep(time.Minute + 500*time.Millisecond) // dead3 is in flight by now
			o.append("t", "k", "a4")                       // a4 waits behind it
			f.flush()
			pass(2 * time.Second) // dead3 failed
			f.publish("t", "k", "a5")
			s.given()
			pass(time.Hour)
			require.Equal(t, []string{"dead3", "a4", "a5"}, s.given())
		})
	})
	t.Run("a scheduled delivery behind a discarded head", func(t *testing.T) {
		onSQLite(t, func(t *testing.T, o *outbox) {
			s := &script{answer: fails(errors.New("later"), always, "head")}
			var dues atomic.Int64
			h := &hooked{appendable: o.store}
			h.due = func() {
				if dues.Add(1) > 5000 {
					time.Sleep(time.Hour) // let the test end
				}
			}
			f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: 10 * time.Hour, Max: 20 * time.Hour}}, over(h))
			o.append("t", "k", "head")
			o.schedule("t", "k", "later", time.Now().Add(time.Minute))
			f.flush()
			o.unpark(store.StateRetrying)
			before := dues.Load()
			time.Sleep(61 * time.Second)
			require.Less(t, dues.Load()-before, int64(100))
		})
	})
}

func TestAnUnreadableParkedTableIsReadAtALimitedRate(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := &script{answer: fails(errors.New("later"), 1, "a1")}
		var asked atomic.Int64
		h := &hooked{appendable: o.store}
		h.followers = func() error {
			if asked.Add(1) > 2000 {
				return nil
			}
			return errors.New("canceling statement due to statement timeout")
		}
		o.one(forwarder.Sink{Sink: s}, over(h))
		o.append("t", "k", "a1", "a2")
		pass(time.Minute)
		require.Less(t, asked.Load(), int64(200))
	})
}

func TestAParkedTableThatCannotBeReadDoesNotCostTheLease(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := &script{answer: fails(errors.New("later"), 1, "a1")}
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
		o.one(forwarder.Sink{Sink: s}, over(h), leased(lease))
		o.append("t", "k", "a1", "a2")
		pass(time.Minute)
		require.Less(t, longest, lease)
	})
}

// gatedLog is a store whose readers wait until a gate opens.
type gatedLog struct {
	appendable
	gate chan struct{}
}

func (s gatedLog) NewReader(p json.RawMessage, f store.Filter) (store.Reader, error) {
	r, err := s.appendable.NewReader(p, f)
	return gatedReader{r, s.gate}, err
}

type gatedReader struct {
	store.Reader
	gate chan struct{}
}

func (g gatedReader) Next(ctx context.Context, t store.Target, limit int) (store.Page, error) {
	select {
	case <-g.gate:
	case <-ctx.Done():
		return store.Page{}, ctx.Err()
	}
	return g.Reader.Next(ctx, t, limit)
}

// readAll reads the log in one page.
func (o *outbox) readAll() store.Page {
	o.t.Helper()
	r, err := o.store.NewReader(nil, store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes})
	require.NoError(o.t, err)
	target, err := o.store.Probe(o.t.Context())
	require.NoError(o.t, err)
	page, err := r.Next(o.t.Context(), target, 1000)
	require.NoError(o.t, err)
	return page
}

// TestARequeueBeforeTheLogIsReadKeepsTheOrder begins with the state after a crash:
// the first delivery of a key is dead, the second was in flight, and the third is parked behind it
// and settled beyond the position. An operator requeues the dead one before the forwarder has read the
// second one again.
func TestARequeueBeforeTheLogIsReadKeepsTheOrder(t *testing.T) {
	for name, c := range map[string]struct {
		head  string // key of the second delivery
		fails error  // error of the requeued delivery
	}{
		"the same key":                          {head: "k"},
		"no key":                                {head: ""},
		"the same key, the requeued one dies":   {head: "k", fails: sinks.Permanent(errors.New("still"))},
		"the same key, the requeued one waits":  {head: "k", fails: errors.New("later")},
		"another key, the requeued one retries": {head: "other", fails: errors.New("later")},
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				ctx := t.Context()
				o.append("a", "k", "dead")
				o.append("a", c.head, "head")
				o.append("a", "k", "behind")
				o.append("a", "", "x", "y")
				_, err := o.store.Cut(ctx, "sink", 1, store.StartOldest)
				require.NoError(t, err)
				lease, err := o.store.Acquire(ctx, store.NewLane("sink", 0, 1), "before", time.Second)
				require.NoError(t, err)
				page := o.readAll()
				require.NoError(t, o.store.Checkpoint(ctx, store.Checkpoint{
					Lease: lease, TTL: time.Second, Number: 1,
					Position: page.After(0), Settled: store.OffsetRanges(page.Envelopes[2].Offset),
					Park: []store.Parked{
						{Envelope: page.Envelopes[0], State: store.StateDead, Attempt: 3},
						{Envelope: page.Envelopes[2], State: store.StateBlocked},
					},
				}))
				require.NoError(t, o.store.Release(ctx, lease))

				s := &script{answer: fails(c.fails, 1, "dead")}
				gate := make(chan struct{})
				f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: time.Minute}}, over(gatedLog{o.store, gate}))
				f.flush()
				require.Empty(t, s.given())
				p := newOperator(o)
				require.Equal(t, 1, p.requeue(store.ParkedFilter{}))
				pass(5 * time.Minute)
				early := s.given()
				require.NotContains(t, early, "behind", "the delivery before it is not read yet")
				require.Equal(t, "dead", early[0])
				close(gate)
				pass(time.Hour)
				late := s.given()
				f.end()
				if c.head == "k" {
					require.Less(t, slices.Index(late, "head"), slices.Index(late, "behind"))
				}
				require.Subset(t, []string{"head", "behind", "x", "y"}, late, "each once, and none of them early")
				require.Len(t, late, 4)
				require.NotContains(t, o.parked(), "sink blocked behind")
			})
		})
	}
}
