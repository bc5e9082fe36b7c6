package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/forwarder/internal/memory"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// If the sink has transactions (sinks.Transactor), a lane works in rounds. Deliveries are made
// as usual, but into the lane's ledger. The settle half ends the round, commits it, and begins
// the next one. If a transaction is aborted, the work on the lane ends: nothing of the round was
// delivered, nothing is written, and the next lease reads it again.

// rounds is the state of a lane with a ledger; the zero value without one.
type rounds struct {
	ledger sinks.Ledger
	// owed are deliveries made and not written under earlier leases.
	owed memory.Owed
	// verdicts are errors of single deliveries under the previous lease. These deliveries are
	// settled by them and not tried again.
	verdicts map[store.Ref]error
}

// verdicts are the verdicts of a lane when a lease ended.
type verdicts struct {
	epoch int64
	of    map[store.Ref]error
}

// roundRows is roughly the number of settlements in a round.
const roundRows = 5000

// meetTime is how long a lane that will be cut waits for deliveries from the parked table that
// were made and not written. Those that a person has removed meanwhile never come.
const meetTime = 10 * time.Second

// Keep makes the lane deliver into a ledger, and passes on what the ledger knows as delivered.
// It must be called before anything is read.
func (l *Lane) Keep(ledger sinks.Ledger, owed memory.Owed) {
	d := l.dispatcher
	d.mu.Lock()
	defer d.mu.Unlock()
	l.ledger, l.owed = ledger, owed
	before, known := d.verdicts[l.lease.Lane.Number]
	delete(d.verdicts, l.lease.Lane.Number)
	if known && before.epoch+1 == l.lease.Epoch { // otherwise another forwarder had the lane meanwhile
		l.verdicts = before.of
	}
}

// keepVerdicts keeps the verdicts for the next lease.
func (l *Lane) keepVerdicts() {
	if len(l.verdicts) == 0 {
		return
	}
	if l.dispatcher.verdicts == nil {
		l.dispatcher.verdicts = make(map[int]verdicts)
	}
	l.dispatcher.verdicts[l.lease.Lane.Number] = verdicts{l.lease.Epoch, l.verdicts}
}

// endedInRound signals that there is something to commit.
func (l *Lane) endedInRound() {
	l.signal()
	if len(l.out.Settled) == roundRows {
		l.dispatcher.drained.Broadcast()
	}
}

// EndRound lets deliveries begin for at most the time most, or until the round is full. Then it
// suspends the lane until Continue, and waits until nothing of it is in flight. It returns false
// if that takes longer than patience; call it again then.
func (l *Lane) EndRound(most, patience time.Duration) (ended bool) {
	d := l.dispatcher
	d.mu.Lock()
	defer d.mu.Unlock()
	full, impatient := false, false
	for flag, after := range map[*bool]time.Duration{&full: most, &impatient: patience} {
		timer := time.AfterFunc(after, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			*flag = true
			d.drained.Broadcast()
		})
		defer timer.Stop()
	}
	for l.over == nil && l.inFlight > 0 && !full && len(l.out.Settled) < roundRows {
		d.drained.Wait()
	}
	l.suspend() // even if nothing has happened: a delivery that began before Take would be in the transaction, but not in its note
	for l.over == nil && l.inFlight > 0 && !l.abandoned && !impatient {
		d.drained.Wait()
	}
	if l.inFlight > 0 && l.abandoned {
		l.giveUp(fmt.Errorf("%w: %w", sinks.ErrAborted, ErrAbandoned))
	}
	return l.over != nil || l.inFlight == 0
}

// giveUpIfAborted gives up the lane if the error of a delivery into its ledger means that the transaction is lost.
// It returns true if the work on the lane is over: then the delivery will be made again.
func (d *Dispatcher) giveUpIfAborted(ctx context.Context, it *item, err error) bool {
	l := it.lane
	// After these errors the content of the ledger is unknown.
	unclear := errors.Is(err, ErrAbandoned) || errors.Is(err, caller.ErrPanic) || errors.Is(err, caller.ErrResults)
	if err == nil || l.ledger.Err() == nil && !unclear {
		return l.over != nil
	}
	switch class, _ := sinks.Classify(err); {
	case unclear, errors.Is(err, sinks.ErrAborted):
	case class == sinks.ClassPermanent, class == sinks.ClassInvalid, class == sinks.ClassTransient, sinks.IsApart(err):
		if l.verdicts == nil {
			l.verdicts = make(map[store.Ref]error)
		}
		l.verdicts[it.ref()] = err
	case class == sinks.ClassUnavailable:
		d.sinkUnavailable(ctx, err)
	}
	l.giveUp(fmt.Errorf("%w: %w", sinks.ErrAborted, err))
	return true
}

// Unopened records that the ledger of a lane could not be opened.
func (d *Dispatcher) Unopened(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if class, _ := sinks.Classify(err); class == sinks.ClassUnavailable {
		d.sinkUnavailable(context.Background(), err)
	}
}

// Unavailable records that the lane's round could not be committed.
func (l *Lane) Unavailable(err error) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	l.dispatcher.sinkUnavailable(context.Background(), err)
}

// endByVerdict ends an item's turn by its verdict, without another attempt, and returns true; false if it has none.
func (d *Dispatcher) endByVerdict(c *call, it *item, now time.Time) bool {
	err, judged := it.lane.verdicts[it.ref()]
	if !judged {
		return false
	}
	delete(it.lane.verdicts, it.ref())
	d.queue.Done(it)
	d.breaker.Begin()
	it.Attempt++
	d.failed(newFailure(c, it, err, now))
	return true
}

// sortByLane groups the items by lane, if the lanes have ledgers. Items of a key keep their
// order.
func (c *call) sortByLane() {
	if c.inLedgers = c.items[0].lane.ledger != nil; !c.inLedgers || !slices.ContainsFunc(c.items, func(it *item) bool { return it.lane != c.items[0].lane }) {
		return
	}
	slices.SortStableFunc(c.items, func(a, b *item) int { return cmp.Compare(a.lane.lease.Lane.Number, b.lane.lease.Lane.Number) })
	for i, it := range c.items {
		c.deliveries[i] = &it.Delivery
	}
}

var _ caller.Batcher = sinks.Ledger(nil)
