package dispatch

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// lost is a ledger whose transaction fails when err is set.
type lost struct{ err error }

func (*lost) DeliverBatch(_ context.Context, batch []*notification.Delivery) []sinks.Result {
	return make([]sinks.Result, len(batch))
}
func (l *lost) Err() error                         { return l.err }
func (*lost) Commit(context.Context, []byte) error { return nil }
func (*lost) Close(context.Context) error          { return nil }

// A delivery that begins after the end of a round would be committed with the round but missing from its
// note.
func TestNoDeliveryBeginsBetweenTwoRounds(t *testing.T) {
	t.Parallel()
	d := idle(t)
	l := join(d, 0, 1)
	l.Keep(&lost{}, nil)
	require.True(t, l.EndRound(time.Minute, time.Minute), "there is no delivery to wait for")
	l.Add(store.Page{Envelopes: []notification.Envelope{{Offset: 1, ID: "a"}}})
	require.Zero(t, d.queue.Len())
	l.Continue()
	require.Equal(t, 1, d.queue.Len())
}

func TestARoundEndsAfterItsDeliveriesInFlight(t *testing.T) {
	t.Parallel()
	d := idle(t)
	l := join(d, 0, 1)
	l.Keep(&lost{}, nil)
	l.inFlight = 1
	require.False(t, l.EndRound(0, time.Millisecond), "one delivery is in flight")
	ended := make(chan bool)
	go func() { ended <- l.EndRound(0, time.Hour) }()
	d.mu.Lock()
	l.returned(1)
	d.mu.Unlock()
	require.True(t, <-ended)
}

func TestAnAbortedTransactionEndsTheLaneAndKeepsThePermanentError(t *testing.T) {
	t.Parallel()
	d := idle(t)
	l := join(d, 0, 7)
	l.Keep(&lost{errors.New("aborted")}, nil)
	refused := sinks.Permanent(errors.New("too large"))
	worker := &call{ctx: t.Context(), results: []sinks.Result{{}, {Err: refused}, {Err: sinks.ErrAborted}}}
	l.Add(store.Page{Envelopes: []notification.Envelope{{Offset: 1, ID: "a"}, {Offset: 2, ID: "b"}, {Offset: 3, ID: "c"}}})
	for range worker.results {
		worker.items = append(worker.items, next(t, d))
	}
	d.mu.Lock()
	l.inFlight, d.inFlight = 3, 3
	d.judge(worker, time.Now())
	d.mu.Unlock()
	require.ErrorIs(t, l.Take(nil).Over, sinks.ErrAborted)
	l.Remember(nil)
	l.Leave()
	require.Zero(t, d.pending)

	later := join(d, 0, 8)
	later.Keep(&lost{}, nil)
	require.Equal(t, map[store.Ref]error{{Offset: 2, ID: "b"}: refused}, later.verdicts)

	later.Remember(nil)
	other := join(d, 0, 10) // another forwarder has had the lane
	other.Keep(&lost{}, nil)
	require.Empty(t, other.verdicts)
}

func TestADeliveryBehindAnAbortedOneIsNotJudged(t *testing.T) {
	t.Parallel()
	d := idle(t)
	l := join(d, 0, 1)
	l.Keep(&lost{errors.New("aborted")}, nil)
	l.Add(store.Page{Envelopes: []notification.Envelope{{Offset: 1, ID: "a", Key: "k"}, {Offset: 2, ID: "b", Key: "k"}, {Offset: 3, ID: "c", Key: "k"}}})
	worker := &call{ctx: t.Context(), results: []sinks.Result{{Err: sinks.ErrAborted}, {Err: errors.New("behind a")}, {Err: errors.New("behind b")}}}
	worker.add(next(t, d))
	d.mu.Lock()
	d.chain(worker, 3, time.Now())
	require.Len(t, worker.items, 3)
	l.inFlight, d.inFlight = 3, 3
	d.judge(worker, time.Now())
	d.mu.Unlock()
	require.ErrorIs(t, l.Take(nil).Over, sinks.ErrAborted)
	require.Empty(t, l.verdicts)
}
