package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/forwarder/internal/memory"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// Where the sink has transactions (sinks.Transactor) a lane works in rounds: deliveries go as
// ever, but into the lane's ledger; the settle half ends the round, commits it, and has the next one
// begin. A transaction that is aborted takes the work on the lane with it: nothing of the round was
// delivered, nothing is written, and the next lease reads it again.

// rounds is what a lane has for that; the zero value where it has no ledger.
type rounds struct {
	ledger sinks.Ledger
	// owed is what was delivered under leases before and not written.
	owed memory.Owed
	// verdicts are what the lease before was told of single deliveries: they are not tried again
	// before that is settled.
	verdicts map[store.Ref]error
}

// verdicts are those of a lane, as they were when a lease ended.
type verdicts struct {
	epoch int64
	of    map[store.Ref]error
}

// roundRows is how many settlements a round has about.
const roundRows = 5000

// meetTime is how long lanes that are to be cut anew wait for parked deliveries that were made and not written.
// What a person has taken away meanwhile is not met.
const meetTime = 10 * time.Second

// Keep has the lane deliver into a ledger, which knows of deliveries that were made. It is called
// before anything is read.
func (l *Lane) Keep(ledger sinks.Ledger, owed memory.Owed) {
	d := l.dispatcher
	d.mu.Lock()
	defer d.mu.Unlock()
	l.ledger, l.owed = ledger, owed
	before, known := d.verdicts[l.lease.Lane.Number]
	delete(d.verdicts, l.lease.Lane.Number)
	if known && before.epoch+1 == l.lease.Epoch { // else another forwarder had the lane
		l.verdicts = before.of
	}
}

// keepVerdicts keeps them for the next lease.
func (l *Lane) keepVerdicts() {
	if len(l.verdicts) == 0 {
		return
	}
	if l.dispatcher.verdicts == nil {
		l.dispatcher.verdicts = make(map[int]verdicts)
	}
	l.dispatcher.verdicts[l.lease.Lane.Number] = verdicts{l.lease.Epoch, l.verdicts}
}

// settledInRound says that there is something to commit.
func (l *Lane) settledInRound() {
	l.mark()
	if len(l.out.Settled) == roundRows {
		l.dispatcher.drained.Broadcast()
	}
}

// EndRound waits until nothing of the lane is in the sink's hands, lets no further delivery
// begin, until Continue, and returns true. It lets deliveries begin for the time most, unless the
// round is full. false: patience is over,
// and it is to be called again.
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
	l.suspend() // also where nothing has happened: what began before Take would be in the transaction, and not in its note
	for l.over == nil && l.inFlight > 0 && !l.abandoned && !impatient {
		d.drained.Wait()
	}
	if l.inFlight > 0 && l.abandoned {
		l.giveUp(fmt.Errorf("%w: %w", sinks.ErrAborted, ErrAbandoned))
	}
	return l.over != nil || l.inFlight == 0
}

// isAborted takes note of what a delivery came to that may have cost the transaction. It returns true
// where it has: then the work on the lane is over, and the delivery is to be made again.
func (d *Dispatcher) isAborted(it *item, err error) bool {
	l := it.lane
	// Of these it is not known what the ledger has.
	unclear := errors.Is(err, ErrAbandoned) || errors.Is(err, caller.ErrPanic) || errors.Is(err, caller.ErrResults)
	if err == nil || l.ledger.Err() == nil && !unclear {
		return l.over != nil
	}
	switch class, _ := sinks.Classify(err); {
	case unclear, errors.Is(err, sinks.ErrAborted):
	case class == sinks.ClassPermanent, class == sinks.ClassTransient:
		if l.verdicts == nil {
			l.verdicts = make(map[store.Ref]error)
		}
		l.verdicts[it.ref()] = err
	case class == sinks.ClassUnavailable:
		d.isAway(err)
	}
	l.giveUp(fmt.Errorf("%w: %w", sinks.ErrAborted, err))
	return true
}

// isAway takes note that the sink is unavailable.
func (d *Dispatcher) isAway(err error) {
	if d.breaker.Unavailable(time.Now(), err) {
		d.opened("sink is unavailable, its deliveries wait", err)
	}
}

// Unopened takes note that the ledger of a lane could not be opened.
func (d *Dispatcher) Unopened(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if class, _ := sinks.Classify(err); class == sinks.ClassUnavailable {
		d.isAway(err)
	}
}

// Unavailable takes note that the lane's round could not be committed.
func (l *Lane) Unavailable(err error) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	l.dispatcher.isAway(err)
}

// isJudged settles an item of which the lease before was told what comes of it, without trying again.
func (d *Dispatcher) isJudged(it *item) bool {
	err, judged := it.lane.verdicts[it.ref()]
	if !judged {
		return false
	}
	delete(it.lane.verdicts, it.ref())
	d.queue.Done(it)
	d.breaker.Begin()
	it.Attempt++
	d.failed(it, err, context.Background())
	return true
}

// sortByLane has the items of each lane follow each other, where lanes have ledgers. Items of a key
// stay in their order.
func (w *call) sortByLane() {
	if w.inLedgers = w.items[0].lane.ledger != nil; !w.inLedgers || !slices.ContainsFunc(w.items, func(it *item) bool { return it.lane != w.items[0].lane }) {
		return
	}
	slices.SortStableFunc(w.items, func(a, b *item) int { return cmp.Compare(a.lane.lease.Lane.Number, b.lane.lease.Lane.Number) })
	for i, it := range w.items {
		w.deliveries[i] = &it.Delivery
	}
}

// call has the sink make deliveries: those of each lane in its ledger, where it has one.
func (d *Dispatcher) call(ctx context.Context, worker *call, seen caller.Seen) []sinks.Result {
	items, deliveries := worker.items, worker.deliveries
	if !worker.inLedgers {
		return d.caller.Call(ctx, deliveries, worker.follows, worker.results, seen)
	}
	results := append(worker.results, make([]sinks.Result, len(items))...)
	var others sync.WaitGroup
	for from, to := 0, 0; from < len(items); from = to {
		for to < len(items) && items[to].lane == items[from].lane {
			to++
		}
		first, part, into := from, deliveries[from:to], results[from:to]
		one := func(ledger sinks.Ledger) {
			copy(into, d.caller.CallOn(ctx, ledger, part, func(i int) bool { return worker.follows(first + i) }, nil, seen))
		}
		if to == len(items) {
			one(items[from].lane.ledger)
		} else {
			ledger := items[from].lane.ledger
			others.Go(func() { one(ledger) })
		}
	}
	others.Wait()
	return results
}

var _ caller.Batcher = sinks.Ledger(nil)
