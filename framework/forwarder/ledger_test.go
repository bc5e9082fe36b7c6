package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// bank is a destination with transactions, which can fail at any step.
type bank struct {
	mu        sync.Mutex
	committed []*notification.Delivery
	rounds    int               // committed transactions
	notes     map[int][]byte    // by lane
	open      map[int]*bankBook // by lane
	tried     map[string]int    // attempted deliveries by id

	// Faults, if set. answer is for one delivery; spoils reports whether its error aborts
	// the transaction. commit fails before or after the commit.
	answer func(ctx context.Context, d *notification.Delivery) (err error, spoils bool)
	commit func() (before, after error)
	opens  func() error
	off    bool
}

type bankBook struct {
	bank   *bank
	lane   int
	mu     sync.Mutex
	batch  []*notification.Delivery
	lost   error
	closed bool
}

var (
	_ sinks.Transactor = (*bank)(nil)
	_ sinks.Ledger     = (*bankBook)(nil)

	errFenced = errors.New("fenced")
)

func newBank() *bank {
	return &bank{notes: make(map[int][]byte), open: make(map[int]*bankBook), tried: make(map[string]int)}
}

func (b *bank) Transacts() bool { return !b.off }

func (b *bank) BatchLimits() sinks.BatchLimits { return sinks.BatchLimits{Size: 4, Ordered: true} }

func (b *bank) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	return "", errors.New("outside of a transaction")
}

func (b *bank) DeliverBatch(_ context.Context, batch []*notification.Delivery) []sinks.Result {
	return sinks.Failed(batch, errors.New("outside of a transaction"))
}

func (b *bank) OpenLedger(_ context.Context, lane sinks.LedgerLane) (sinks.Ledger, []byte, error) {
	if b.opens != nil {
		if err := b.opens(); err != nil {
			return nil, nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if before := b.open[lane.Number]; before != nil {
		before.mu.Lock()
		before.lost = errFenced
		before.mu.Unlock()
	}
	l := &bankBook{bank: b, lane: lane.Number}
	b.open[lane.Number] = l
	return l, slices.Clone(b.notes[lane.Number]), nil
}

func (l *bankBook) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

func (l *bankBook) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	results := make([]sinks.Result, len(batch))
	failed := make(map[string]bool)
	for i, d := range batch {
		if d.Key != "" && failed[d.Key] {
			results[i].Err = errors.New("behind")
			continue
		}
		results[i].Err = l.deliver(ctx, d)
		failed[d.Key] = failed[d.Key] || results[i].Err != nil
	}
	return results
}

func (l *bankBook) deliver(ctx context.Context, d *notification.Delivery) error {
	var err error
	var spoils bool
	l.bank.mu.Lock()
	l.bank.tried[d.ID]++
	l.bank.mu.Unlock()
	if l.bank.answer != nil {
		err, spoils = l.bank.answer(ctx, d)
	}
	copied := *d
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return fmt.Errorf("%w: closed", sinks.ErrAborted)
	case l.lost != nil && !spoils:
		return fmt.Errorf("%w: %w", sinks.ErrAborted, l.lost)
	case spoils:
		l.lost = err
	}
	if err == nil {
		l.batch = append(l.batch, &copied)
	}
	return err
}

func (l *bankBook) Commit(_ context.Context, note []byte) error {
	var before, after error
	if l.bank.commit != nil {
		before, after = l.bank.commit()
	}
	l.bank.mu.Lock()
	defer l.bank.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		l.lost = before
	}
	if l.lost != nil {
		return l.lost
	}
	l.bank.committed = append(l.bank.committed, l.batch...)
	l.bank.notes[l.lane] = note
	l.bank.rounds++
	l.batch = nil
	l.lost = after
	return after
}

func (l *bankBook) Close(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed, l.batch = true, nil
	return nil
}

// taken returns the committed ids, in order.
func (b *bank) taken() (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.committed {
		ids = append(ids, d.ID)
	}
	return ids
}

func (b *bank) sink() forwarder.Sink {
	return forwarder.Sink{Sink: b, Retry: forwarder.Retry{MaxAttempts: 1000, Initial: 200 * time.Millisecond, Max: 2 * time.Second}}
}

func briefLease(c *forwarder.Config) {
	c.ShutdownTimeout, c.Poll, c.Lease = 500*time.Millisecond, 100*time.Millisecond, 20*time.Second
}

func TestACommitWithoutACheckpointIsNotRepeated(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := newBank()
		var refused atomic.Int64
		h := &hooked{appendable: o.store}
		h.checkpoint = func(_ context.Context, c store.Checkpoint, next func() error) error {
			if c.Number > 0 && len(b.taken()) > 0 {
				refused.Add(1)
				return store.ErrLeaseLost // as if the process had been killed
			}
			return next()
		}
		ids := numbered("n", 20)
		o.append("t", "k", ids[:10]...)
		o.append("t", "", ids[10:]...)
		o.schedule("t", "", "later", time.Now().Add(time.Hour))
		f := o.one(b.sink(), briefLease, over(h))
		f.flush()
		f.abandon()
		require.NotEmpty(t, b.taken())
		require.Positive(t, refused.Load())

		o.expireLeases()
		var lost atomic.Bool
		b.commit = func() (before, after error) { // the note with which the next lease begins is all that it leaves
			if !lost.Swap(true) {
				after = errors.New("its answer is lost")
			}
			return nil, after
		}
		o.deliver(time.Minute, b.sink(), briefLease)
		require.ElementsMatch(t, ids, b.taken())
		require.Equal(t, []string{"sink scheduled later"}, o.parked())
	})
}

func TestACommitOfAParkedDeliveryWithoutACheckpointIsNotRepeated(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := newBank()
		later := failsOnce(errors.New("later"), "head")
		b.answer = func(ctx context.Context, d *notification.Delivery) (error, bool) { return later(ctx, d), false }
		h := &hooked{appendable: o.store}
		h.checkpoint = func(_ context.Context, c store.Checkpoint, next func() error) error {
			if len(c.Unpark) > 0 {
				return store.ErrLeaseLost
			}
			return next()
		}
		o.append("t", "k", "head", "follower")
		f := o.one(b.sink(), briefLease, over(h))
		time.Sleep(time.Second)
		f.flush()
		f.abandon()
		require.Equal(t, "head", b.taken()[0])
		require.Len(t, o.parked(), 2)

		o.expireLeases()
		o.deliver(time.Minute, b.sink(), briefLease)
		require.Equal(t, []string{"head", "follower"}, b.taken())
		require.Empty(t, o.parked())
	})
}

func TestAPermanentlyRefusedRecordIsDeadAndTheOthersAreCommitted(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := newBank()
		b.answer = func(_ context.Context, d *notification.Delivery) (error, bool) {
			if strings.HasPrefix(d.ID, "bad") {
				return sinks.Permanent(errors.New("too large")), true
			}
			return nil, false
		}
		o.append("t", "k", "a", "bad1", "b")
		o.append("t", "", "c", "bad2", "d")
		o.deliver(time.Minute, b.sink(), briefLease)
		require.ElementsMatch(t, []string{"a", "b", "c", "d"}, b.taken())
		require.Equal(t, []string{"sink dead bad1", "sink dead bad2"}, o.parked())
		require.Equal(t, 1, value[int](o, `SELECT max(attempt) FROM outbox_parked`), "the aborted transaction did not spend an attempt")
	})
}

func TestDeliveriesThatArriveTogetherShareATransaction(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := newBank()
		o.append("t", "", numbered("n", 1000)...)
		o.deliver(0, b.sink(), briefLease)
		require.Len(t, b.taken(), 1000)
		require.Less(t, b.rounds, 20)
	})
}

func TestAPanicOnlyAbortsTheTransaction(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := newBank()
		panics := 3
		b.answer = func(_ context.Context, d *notification.Delivery) (error, bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if d.ID == "c" && panics > 0 {
				panics--
				panic("behind records that are in the transaction")
			}
			return nil, false
		}
		o.append("t", "k", "a", "b", "c", "d")
		s := b.sink()
		s.Retry.MaxAttempts = 1
		o.deliver(time.Minute, s, briefLease)
		require.Equal(t, []string{"a", "b", "c", "d"}, b.taken())
		require.Empty(t, o.parked())
	})
}

func TestExpiredTransactionsAreNoError(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := newBank()
		var expired atomic.Bool
		b.answer = func(context.Context, *notification.Delivery) (error, bool) {
			if expired.CompareAndSwap(true, false) {
				return fmt.Errorf("%w: %w: a week has passed", sinks.ErrAborted, sinks.ErrExpired), true
			}
			return nil, false
		}
		var log lines
		f := o.one(b.sink(), briefLease, log.logging)
		f.flush()
		expired.Store(true)
		o.append("t", "k", "a", "b")
		time.Sleep(time.Minute)
		f.flush()
		f.end()
		require.Equal(t, []string{"a", "b"}, b.taken())
		require.Empty(t, o.parked())
		require.Empty(t, log.with("level=ERROR"))
		require.Len(t, log.with("a week has passed"), 1, "the reason, once")
		require.Len(t, log.with("works again"), 1)
	})
}

func TestAnUnavailableBankLeavesNothingDead(t *testing.T) {
	onEachStoreIfLong(t, func(t *testing.T, o *outbox) {
		b := newBank()
		var up atomic.Bool
		b.opens = func() error {
			if up.Load() {
				return nil
			}
			return sinks.Unavailable(errors.New("no brokers"))
		}
		o.append("t", "k", "a", "b")
		s := b.sink()
		s.Retry.MaxAttempts = 1
		f := o.one(s, briefLease)
		pass(time.Minute)
		require.True(t, f.Figures().Sinks[0].BreakerOpen, "the breaker shows that the sink is unavailable")
		up.Store(true)
		time.Sleep(5 * time.Minute)
		f.flush()
		require.Equal(t, []string{"a", "b"}, b.taken())
		require.False(t, f.Figures().Sinks[0].BreakerOpen)
		f.end()
		require.Empty(t, o.parked())
	})
}

func TestAForgottenSinkStartsAgainWhateverTheNotesSay(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := newBank()
		o.append("t", "k", "a", "b")
		s := b.sink()
		s.Start = store.StartOldest
		o.deliver(0, s, briefLease)
		_, err := o.store.Forget(t.Context(), "sink")
		require.NoError(t, err)
		o.deliver(time.Minute, s, briefLease)
		require.Equal(t, []string{"a", "b", "a", "b"}, b.taken(), "both are delivered again")
	})
}

func TestAReplayIsDeliveredWhateverTheNotesSay(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := newBank()
		o.append("t", "k", "a", "b")
		o.deliver(0, b.sink(), briefLease)
		o.exec(`INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, due_at)
			SELECT 'sink', "offset", 0, id, type, version, key, occurred_on, metadata, payload, 'retrying', 0, occurred_on FROM outbox WHERE id = 'b'`)
		o.deliver(time.Minute, b.sink(), briefLease)
		require.Equal(t, []string{"a", "b", "b"}, b.taken())
	})
}

func TestADatabaseInAnEarlierStateLosesNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := newBank()
		o.append("t", "k", "a", "b", "c")
		o.deliver(0, b.sink(), briefLease)
		// This is the state after a failover to a standby that lagged: the cursor and the last rows are
		// older, and offsets are used again.
		o.exec(`UPDATE outbox_cursors SET position = NULL, settled = '', checkpoint = 0`)
		o.exec(`DELETE FROM outbox WHERE id = 'c'`)
		o.exec(`UPDATE outbox SET id = 'new' WHERE id = 'b'`)
		o.deliver(time.Minute, b.sink(), briefLease)
		require.Contains(t, b.taken(), "new")
	})
}

func TestExactlyOnceRefusesHooksMiddlewareAndSeveralDatabases(t *testing.T) {
	t.Parallel()
	b := newBank()
	s := b.sink()
	s.Middleware = []message.HandlerMiddleware{func(h message.HandlerFunc) message.HandlerFunc { return h }}
	c := forwarder.Config{Fleet: true, Sinks: map[string]forwarder.Sink{"bank": s}, Routes: route.Routes{"*": route.To("bank")}}
	_, err := forwarder.New(c)
	require.ErrorContains(t, err, "sinks.bank delivers exactly once: middleware and hooks")
	require.ErrorContains(t, err, "sinks.bank delivers exactly once, which works with one database only")
	b.off = true
	_, err = forwarder.New(c)
	require.NoError(t, err)
}
