package policy

import (
	"context"
	"database/sql"
	"time"
	"unsafe"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Hooks are called with the results of deliveries, in the transaction of the checkpoint that writes
// them. Package forwarder documents them for programs.
type Hooks struct {
	// Delivered is called with deliveries that succeeded.
	Delivered func(ctx context.Context, tx *sql.Tx, delivered []Delivered) error
	// Parked is called with deliveries that are now retrying, scheduled or blocked, and again
	// each time that one fails.
	Parked func(ctx context.Context, tx *sql.Tx, parked []Parked) error
	// Dead is called with deliveries that are dead.
	Dead func(ctx context.Context, tx *sql.Tx, dead []Parked) error
}

// Same reports whether all functions are identical values.
func (h *Hooks) Same(other Hooks) bool {
	return sameFunc(h.Delivered, other.Delivered) && sameFunc(h.Parked, other.Parked) && sameFunc(h.Dead, other.Dead)
}

// sameFunc compares the closures of two functions, which == does not allow.
func sameFunc[F any](a, b F) bool {
	return *(*unsafe.Pointer)(unsafe.Pointer(&a)) == *(*unsafe.Pointer)(unsafe.Pointer(&b))
}

// Any reports whether any hook is set.
func (h *Hooks) Any() bool { return h.Delivered != nil || h.Parked != nil || h.Dead != nil }

// Parked is a delivery that could not be made now.
type Parked struct {
	*notification.Delivery
	State store.State
	// DueAt is when its next attempt is due; zero for blocked and dead ones.
	DueAt time.Time
	// Error is the error of the last attempt; "" if there was none.
	Error string
	// Reason is why it is dead; DeadNot if it is not.
	Reason DeadReason
}

// DeadReason is why a delivery is dead.
type DeadReason uint8

// The reasons why a delivery is dead.
const (
	DeadNot      DeadReason = iota // it is not dead
	DeadAttempts                   // no attempt is left: retry.max_age or max_attempts
	DeadRefused                    // the sink or its destination refused it permanently
	DeadUnknown                    // its type or version stayed unknown for too long
	DeadRoute                      // a condition or payload expression of its route failed
)

// String returns a word for the reason, such as attempts.
func (r DeadReason) String() string {
	return [...]string{"", "attempts", "refused", "unknown", "route"}[r]
}

// Delivered is a delivery that succeeded.
type Delivered struct {
	*notification.Delivery
	Receipt notification.Receipt
}
