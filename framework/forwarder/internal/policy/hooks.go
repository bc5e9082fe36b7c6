package policy

import (
	"context"
	"database/sql"
	"unsafe"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/notification"
)

// Hooks are called with the results of deliveries, in the transaction of the checkpoint that writes
// them. Package forwarder documents them for programs.
type Hooks struct {
	// Delivered is called with deliveries that succeeded.
	Delivered func(ctx context.Context, tx *sql.Tx, delivered []Delivered) error
	// Parked is called with deliveries that are now retrying, scheduled or blocked, and again
	// each time that one fails.
	Parked func(ctx context.Context, tx *sql.Tx, parked []event.Parked) error
	// Dead is called with deliveries that are dead.
	Dead func(ctx context.Context, tx *sql.Tx, dead []event.Parked) error
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

// Delivered is a delivery that succeeded.
type Delivered struct {
	*notification.Delivery
	Receipt notification.Receipt
}
