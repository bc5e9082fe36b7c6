package dispatch

import (
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// memory is what a lane has delivered and could not write before its lease ended. The
// next lease of the lane in this process settles it when it is read again, without
// delivering again.
//
// That is safe although what is remembered of transactions is not (a server that
// crashes takes them back): a delivery that was made stays made. If the row is gone,
// nothing is read; if another row has its offset, the id differs.
//
// For parked deliveries that holds as long as no person has changed what is parked: one
// that was requeued or replayed meanwhile may look as it did before.
type memory struct {
	epoch      int64 // of the lease that made it
	revision   int64 // of what is parked, when that lease was given
	lane       store.Lane
	deliveries map[store.Ref]madeDelivery
}

// madeDelivery is what is remembered of a delivery: not its page.
type madeDelivery struct {
	receipt     notification.Receipt
	attempt     int
	fromLog     bool
	state       store.State // of the row in the parked table
	firstParked time.Time
}

// recall returns what the lease before has left behind; nil if there is nothing, or if
// another forwarder has had the lane in between.
func (d *Dispatcher) recall(lease store.Lease) *memory {
	i := slices.IndexFunc(d.memories, func(m *memory) bool { return m.lane == lease.Lane })
	if i < 0 {
		return nil
	}
	m := d.memories[i]
	d.memories = slices.Delete(d.memories, i, i+1)
	if m.epoch+1 != lease.Epoch {
		return nil
	}
	if m.revision != lease.Revision {
		m.forget(false)
	}
	return m
}

// Remember keeps what was delivered and is not written, for the next lease of the lane.
// unwritten is what Take gave and no checkpoint wrote.
func (l *Lane) Remember(unwritten []Settlement) {
	d := l.dispatcher
	d.mu.Lock()
	defer d.mu.Unlock()
	m := &memory{epoch: l.lease.Epoch, revision: l.lease.Revision, lane: l.lease.Lane, deliveries: make(map[store.Ref]madeDelivery)}
	if l.memory != nil { // what was not met in this lease either
		for ref, s := range l.memory.deliveries {
			m.deliveries[ref] = s
		}
	}
	for _, all := range [][]Settlement{unwritten, l.out.Settled, l.made} {
		for _, s := range all {
			if s.Delivered {
				m.deliveries[store.RefOf(s.item.Envelope)] = madeDelivery{s.Receipt, s.item.Attempt, s.FromLog(), s.item.state, s.item.firstParked}
			}
		}
	}
	d.memories = slices.DeleteFunc(d.memories, func(old *memory) bool { return old.lane == m.lane })
	if len(m.deliveries) > 0 {
		d.memories = append(d.memories, m)
		l.log.Info("deliveries that are made and not written are remembered", "count", len(m.deliveries))
	}
}

// made returns the settlement of a delivery that was made under the lease before. A
// parked delivery counts only if its state, its attempts and the time at which it was
// first parked are as they were: a person who requeues or replays one wants it delivered
// again.
func (m *memory) made(it *item) (s Settlement, ok bool) {
	if m == nil || len(m.deliveries) == 0 {
		return s, false
	}
	ref := store.RefOf(it.Envelope)
	made, ok := m.deliveries[ref]
	if !ok {
		return s, false
	}
	if it.fromLog() != made.fromLog {
		return Settlement{}, false // a replay, say, of what is still to be read
	}
	delete(m.deliveries, ref)
	if !it.fromLog() && (it.state != made.state || it.Attempt != made.attempt-1 || !it.firstParked.Equal(made.firstParked)) {
		return Settlement{}, false
	}
	it.Attempt = made.attempt
	return Settlement{Receipt: made.receipt, Delivered: true}, true
}

// forgetLog drops what was of the log: it has been read, and what was not met is gone.
func (m *memory) forgetLog() {
	if m != nil {
		m.forget(true)
	}
}

// forget drops what was of the log, or what was parked.
func (m *memory) forget(fromLog bool) {
	maps.DeleteFunc(m.deliveries, func(_ store.Ref, made madeDelivery) bool { return made.fromLog == fromLog })
}
