package policy

import (
	"context"
	"database/sql"
	"time"
	"unsafe"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Hooks are called with what becomes of deliveries, in the transaction of the
// checkpoint that writes it down: their effects commit with it, or not at all. A
// user row's status becomes "sent" exactly when its delivery is settled.
//
// A hook is called with at most 1,000 deliveries and must be quick; its context ends
// after a third of the lease. Where it fails it is called again with half as many
// deliveries, down to one, so that those for which it succeeds are saved. One for which it
// fails alone is held back, and no other: it is parked as settling (or as dead, if that is
// what became of it) with the hook's error, is not delivered again, and Delivered or Dead
// is called again after 1 s, then 2 s, and so on up to 5 min, until it succeeds. Parked is
// not called again for the same attempt. From ten deliveries in a row on each one that a
// hook fails for costs its lane 0.5 s, so that a hook that is broken fills no table.
//
// After a crash, a delivery that is repeated reaches the hook again as well.
type Hooks struct {
	// Delivered is called with what the sink has taken.
	Delivered func(ctx context.Context, tx *sql.Tx, delivered []Delivered) error
	// Parked is called with what is retrying, scheduled or blocked from now on; a
	// delivery that fails again comes again.
	Parked func(ctx context.Context, tx *sql.Tx, parked []Parked) error
	// Dead is called with what is not tried any more.
	Dead func(ctx context.Context, tx *sql.Tx, dead []Parked) error
}

// Same says whether the functions are the very same values.
func (h *Hooks) Same(other Hooks) bool {
	return sameFunc(h.Delivered, other.Delivered) && sameFunc(h.Parked, other.Parked) && sameFunc(h.Dead, other.Dead)
}

// sameFunc compares the closures that two functions point to, which == does not.
func sameFunc[F any](a, b F) bool {
	return *(*unsafe.Pointer)(unsafe.Pointer(&a)) == *(*unsafe.Pointer)(unsafe.Pointer(&b))
}

// Any says whether there is a hook.
func (h *Hooks) Any() bool { return h.Delivered != nil || h.Parked != nil || h.Dead != nil }

// Parked is a delivery that could not be made.
type Parked struct {
	*notification.Delivery
	State store.State
	// DueAt is when it is tried next; zero for blocked and dead ones.
	DueAt time.Time
	// Error is what the last attempt came to; "" if there was none.
	Error string
	// Reason is why a dead one was given up; DeadNot for others.
	Reason DeadReason
}

// DeadReason is why a delivery is not tried any more.
type DeadReason uint8

// The reasons.
const (
	DeadNot      DeadReason = iota // it is not dead
	DeadAttempts                   // its attempts are spent
	DeadRefused                    // the destination, or the sink, refused it for good
	DeadTooOld                     // it is older than retry.max_age
	DeadUnknown                    // its type or version stayed unknown for too long
	DeadRoute                      // a condition or payload expression of its route failed
)

// String is the reason in a word, such as attempts.
func (r DeadReason) String() string {
	return [...]string{"", "attempts", "refused", "too_old", "unknown", "route"}[r]
}

// Delivered is a delivery that a sink has taken.
type Delivered struct {
	*notification.Delivery
	Receipt notification.Receipt
}
