package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Deliveries hold how far each sink has come: its cursors and parked deliveries.
type Deliveries interface {
	// Checkpoint writes everything that was settled since the last one, in one short
	// transaction, and renews the lease. If the lease was lost to another owner, it changes
	// nothing and returns ErrLeaseLost. It returns ErrServerChanged if another server gave the
	// lease. A numbered checkpoint that is already written changes nothing more, so one with
	// an unknown outcome (the connection died during its commit) is simply repeated.
	Checkpoint(ctx context.Context, c Checkpoint) error

	// Due returns parked deliveries of the lane that are due at now, in the order of their
	// times: retrying ones, scheduled and cancelled ones whose key has nothing parked before
	// them, and settling and dead ones whose hook must be called again. next is when the next
	// delivery of the sink becomes due, in any lane; zero if none waits for a time.
	Due(ctx context.Context, q DueQuery) (due []Parked, next time.Time, err error)

	// Followers returns the first limit parked deliveries of each key that hold back later
	// ones, in log order: retrying and blocked ones, and with halt also dead ones. Blocked ones
	// with no other before them are free to go. The result is grouped by key, in the order of
	// keys. Each key is given once and is not empty.
	//
	// If the payloads add up to some megabytes, the result ends early: keys[:answered] are
	// complete, and nothing is returned for the others. If the payloads of a single key are
	// that large, it counts as answered with its first deliveries. At least one key is
	// answered, unless none is given.
	Followers(ctx context.Context, lane Lane, keys []string, halt bool, limit int) (parked []Parked, answered int, err error)

	// HeldKeys returns the keys of the lane that parked deliveries hold back: those of retrying
	// and blocked ones, and with halt also of dead ones. It returns at most limit keys greater
	// than after, in the order in which the database compares keys; after "" it begins with
	// the first. The empty key never holds anything back and is left out.
	HeldKeys(ctx context.Context, lane Lane, halt bool, after string, limit int) ([]HeldKey, error)

	// KeepsReceipts reports whether checkpoints archive receipts. If not, callers need not
	// collect them.
	KeepsReceipts() bool
}

// Checkpoint is what was settled since the last checkpoint.
type Checkpoint struct {
	Lease Lease
	// TTL is how long the lease lasts from now.
	TTL time.Duration
	// Number numbers the checkpoints of a lane across leases: the first one of a lease follows
	// Lease.Checkpoint. A checkpoint whose number is not above the last written one is already
	// written: it changes nothing and does not renew the lease. 0 is not counted and always
	// written: with only Lease and TTL it renews the lease.
	Number int64
	// Position is after the last row of the settled prefix. nil leaves the cursor's position
	// and settled offsets unchanged.
	Position Position
	// Settled are offsets after Position that were settled out of order, ascending.
	Settled []OffsetRange
	// Park are deliveries to insert, or to replace if they are already parked. A blocked one
	// replaces nothing: it was read from the log, and its parked form is from an earlier reading.
	Park []Parked
	// Hooked are settling and dead deliveries that stay parked after another call of their hook:
	// DueAt, HookError and HookFailures are replaced if the delivery still has its State. What a
	// person has requeued or discarded meanwhile stays unchanged.
	Hooked []Parked
	// Unpark are parked deliveries to delete, since they are delivered.
	Unpark []Ref
	// Receipts are archived if the store keeps receipts.
	Receipts []Receipt
	// InTx, if set, runs inside the checkpoint's transaction, before its commit. Its error
	// rolls everything back. ErrSpoiled: it returned no error, but the transaction cannot be
	// committed.
	InTx func(ctx context.Context, tx *sql.Tx) error
}

// Receipt is the receipt of a delivery, for the archive.
type Receipt struct {
	Offset      int64
	ID          string
	Receipt     notification.Receipt
	Attempt     int
	DeliveredAt time.Time
}
