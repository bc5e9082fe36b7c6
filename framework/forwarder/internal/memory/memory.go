// Package memory keeps deliveries that a lane has made and could not write before its lease
// ended. When the next lease of the lane in this process reads them again, it settles them
// without delivering them again.
//
// This is safe even though knowledge about transactions is not (a server that crashes undoes
// some of them): a delivery that was made stays made. If its row is gone, it is not read again;
// if another row has its offset, the id differs.
//
// For parked deliveries this holds only while no person has changed them: one that was requeued
// or replayed meanwhile may look as it did before.
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

// Row is where a delivery came from, as it was at that time.
type Row struct {
	// Attempt is the number of the attempt that made the delivery.
	Attempt int
	// FromLog means that it was read from the log rather than from the parked table.
	FromLog bool
	// State and FirstParked are the values of its row in the parked table.
	State       store.State
	FirstParked time.Time
}

// Lane is what one lease of a lane has left behind. A nil Lane is empty.
type Lane struct {
	lease      store.Lease
	deliveries map[store.Ref]Made
}

// New returns an empty memory for a lease.
func New(lease store.Lease) *Lane {
	return &Lane{lease: lease, deliveries: make(map[store.Ref]Made)}
}

// Add remembers a delivery.
func (l *Lane) Add(ref store.Ref, made Made) { l.deliveries[ref] = made }

// AddAll remembers everything from an older memory.
func (l *Lane) AddAll(older *Lane) {
	if older != nil {
		maps.Copy(l.deliveries, older.deliveries)
	}
}

// Len returns how many deliveries are remembered.
func (l *Lane) Len() int {
	if l == nil {
		return 0
	}
	return len(l.deliveries)
}

// Met returns the remembered delivery when it is read again as row, and forgets it. For a parked
// delivery, state, attempts and the time at which it was first parked must be unchanged: a
// person who requeues or replays it wants it delivered again.
func (l *Lane) Met(ref store.Ref, row Row) (made Made, ok bool) {
	if l.Len() == 0 {
		return made, false
	}
	made, ok = l.deliveries[ref]
	if !ok || row.FromLog != made.FromLog { // e.g. a replay of a row that will still be read
		return Made{}, false
	}
	delete(l.deliveries, ref)
	if !row.isAsBefore(made.Row) {
		return Made{}, false
	}
	return made, true
}

// isAsBefore reports whether a row is unchanged since the delivery was made.
func (r Row) isAsBefore(made Row) bool {
	return r.FromLog || r.State == made.State && r.Attempt == made.Attempt-1 && r.FirstParked.Equal(made.FirstParked)
}

// ForgetLog forgets deliveries from the log, after all of it has been read: rows that were not
// met are gone.
func (l *Lane) ForgetLog() { l.forget(true) }

// forget forgets the deliveries from the log, or those from the parked table.
func (l *Lane) forget(fromLog bool) {
	if l != nil {
		maps.DeleteFunc(l.deliveries, func(_ store.Ref, made Made) bool { return made.FromLog == fromLog })
	}
}

// Lanes are the memories of a sink's lanes, at most one for each.
type Lanes []*Lane

// Keep replaces the memory of a lane; an empty memory only removes the old one.
func (all *Lanes) Keep(l *Lane) {
	all.Retain(func(lane store.Lane) bool { return lane != l.lease.Lane })
	if l.Len() > 0 {
		*all = append(*all, l)
	}
}

// Recall removes and returns what the previous lease has left behind; nil if there is nothing,
// or if another forwarder has had the lane meanwhile.
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

// Retain forgets the memories of all other lanes.
func (all *Lanes) Retain(keep func(lane store.Lane) bool) {
	*all = slices.DeleteFunc(*all, func(l *Lane) bool { return !keep(l.lease.Lane) })
}
