package session

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/settle"
	"github.com/waybill-go/waybill/sinks"
)

// closeTime bounds closing a ledger. What it cannot abort by then, the next ledger aborts.
const closeTime = 5 * time.Second

// opened is the result of opening a ledger.
type opened struct {
	ledger sinks.Ledger
	newest []byte
	err    error
}

// checkpointerWithLedger is checkpointer for a Transactor. First, opening a ledger cuts off all
// earlier ledgers of the lane. Then it reads what they delivered. Then it renews the lease, which
// shows that no later forwarder has the lane. Only after that anything is written to the new
// ledger.
func (s *Session) checkpointerWithLedger(ctx context.Context, c settle.Config) (k *settle.Checkpointer, closeLedger func(), err error) {
	o := s.open(ctx, settle.New(c))
	closeLedger = func() {}
	if o.ledger != nil {
		closeLedger = func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
			defer cancel()
			if err := o.ledger.Close(ctx); err != nil {
				s.log.Warn("closing the lane's ledger failed: its last transaction is aborted later", "error", err)
			}
		}
	}
	if o.err != nil {
		s.Dispatcher.Unopened(o.err)
		return nil, closeLedger, o.err
	}
	owed, stale, err := settle.Recover(s.Lease, o.newest)
	if err != nil {
		return nil, closeLedger, err
	}
	switch behind := settle.Behind(s.Lease, o.newest); {
	case stale != "":
		s.log.Warn("the sink's newest note of the lane is ignored", "reason", stale)
	case behind > 0:
		s.log.Warn("the database was set back: later deliveries are repeated", "checkpoints", behind)
	case o.newest == nil && s.Lease.Checkpoint > 0:
		s.log.Warn("the sink has no note of the lane: deliveries are made exactly once from now on; if they already were before, the notes are lost, or the sink's address leads elsewhere")
	case len(owed) > 0:
		s.log.Info("deliveries were made but not written: they are known and not repeated", "count", len(owed))
	}
	s.lane.Keep(o.ledger, owed)
	c.Ledger, c.Committed = o.ledger, s.Begun
	k = settle.New(c)
	if err := k.Restore(ctx); err != nil {
		return nil, closeLedger, err
	}
	if len(owed) > 0 || stale != "" {
		err = k.Begin(ctx, owed)
	}
	return k, closeLedger, err
}

// open opens the lane's ledger, and renews the lease meanwhile.
func (s *Session) open(ctx context.Context, k *settle.Checkpointer) opened {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan opened, 1)
	go func() {
		ledger, newest, err := s.Transactor.OpenLedger(ctx, sinks.LedgerLane{Number: s.Lease.Lane.Number, Of: s.Lease.Lane.Of})
		done <- opened{ledger, newest, err}
	}()
	renew := time.NewTicker(s.TTL / 3)
	defer renew.Stop()
	for {
		select {
		case o := <-done:
			return o
		case <-renew.C:
			if err := k.Renew(ctx); settle.Lost(err) {
				cancel()
				o := <-done
				o.err = err
				return o
			}
		}
	}
}
