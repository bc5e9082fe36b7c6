// Package memory keeps what a lane has delivered and could not write before its lease
// ended. The next lease of the lane in this process settles it when it is read again,
// without delivering again.
//
// That is safe although what is remembered of transactions is not (a server that
// crashes takes them back): a delivery that was made stays made. If the row is gone,
// nothing is read; if another row has its offset, the id differs.
//
// For parked deliveries that holds as long as no person has changed what is parked: one
// that was requeued or replayed meanwhile may look as it did before.
package memory

import (
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Made is a delivery that was made.
type Made struct {
	Receipt notification.Receipt
	Row
}

// Row is where a delivery came from, as it was then.
type Row struct {
	// Attempt numbers the attempt in which it was made.
	Attempt int
	// FromLog says that it was read from the log, and not from the parked table.
	FromLog bool
	// State and FirstParked are those of its row in the parked table.
	State       store.State
	FirstParked time.Time
}

// Lane is what one lease of a lane has left behind. A nil Lane is empty.
type Lane struct {
	lease      store.Lease
	deliveries map[store.Ref]Made
}

// New returns an empty memory of what was made under a lease.
func New(lease store.Lease) *Lane {
	return &Lane{lease: lease, deliveries: make(map[store.Ref]Made)}
}

// Add remembers a delivery.
func (l *Lane) Add(ref store.Ref, made Made) { l.deliveries[ref] = made }

// AddAll remembers what an older memory still has.
func (l *Lane) AddAll(older *Lane) {
	if older != nil {
		maps.Copy(l.deliveries, older.deliveries)
	}
}

// Len is how many deliveries are remembered.
func (l *Lane) Len() int {
	if l == nil {
		return 0
	}
	return len(l.deliveries)
}

// Met returns a delivery that was made and is met again in row, and forgets it. A
// parked delivery counts only if its state, its attempts and the time at which it was
// first parked are as they were: a person who requeues or replays one wants it delivered
// again.
func (l *Lane) Met(ref store.Ref, row Row) (made Made, ok bool) {
	if l.Len() == 0 {
		return made, false
	}
	made, ok = l.deliveries[ref]
	if !ok || row.FromLog != made.FromLog { // a replay, say, of what is still to be read
		return Made{}, false
	}
	delete(l.deliveries, ref)
	if !row.isAsBefore(made.Row) {
		return Made{}, false
	}
	return made, true
}

// isAsBefore says whether a row that is met is as it was when the delivery was made.
func (r Row) isAsBefore(made Row) bool {
	return r.FromLog || r.State == made.State && r.Attempt == made.Attempt-1 && r.FirstParked.Equal(made.FirstParked)
}

// ForgetLog drops what was of the log: all of it has been read, and what was not met is
// gone.
func (l *Lane) ForgetLog() { l.forget(true) }

// forget drops what was of the log, or what was parked.
func (l *Lane) forget(fromLog bool) {
	if l != nil {
		maps.DeleteFunc(l.deliveries, func(_ store.Ref, made Made) bool { return made.FromLog == fromLog })
	}
}

// Lanes are the memories of a sink's lanes, one of each at most.
type Lanes []*Lane

// Keep keeps a lane's memory in place of the one before, unless it is empty.
func (all *Lanes) Keep(l *Lane) {
	all.Retain(func(lane store.Lane) bool { return lane != l.lease.Lane })
	if l.Len() > 0 {
		*all = append(*all, l)
	}
}

// Recall hands over what the lease before has left behind; nil if there is nothing, or
// if another forwarder has had the lane in between.
func (all *Lanes) Recall(lease store.Lease) *Lane {
	i := slices.IndexFunc(*all, func(l *Lane) bool { return l.lease.Lane == lease.Lane })
	if i < 0 {
		return nil
	}
	l := (*all)[i]
	*all = slices.Delete(*all, i, i+1)
	if l.lease.Epoch+1 != lease.Epoch {
		return nil
	}
	if l.lease.Revision != lease.Revision {
		l.forget(false)
	}
	return l
}

// Retain drops the memories of other lanes.
func (all *Lanes) Retain(keep func(lane store.Lane) bool) {
	*all = slices.DeleteFunc(*all, func(l *Lane) bool { return !keep(l.lease.Lane) })
}
