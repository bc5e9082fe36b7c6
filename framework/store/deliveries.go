package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Deliveries are how far a sink has come: its cursors, and what is parked for it.
type Deliveries interface {
	// Checkpoint writes everything that was settled since the last one, in one
	// short transaction, and renews the lease. If the lease went to another
	// owner it changes nothing and returns ErrLeaseLost; ErrServerChanged if the
	// server is not the one that gave it. A numbered checkpoint that
	// is written already changes nothing more, so one whose outcome is unknown
	// (the connection died in its commit) is simply repeated.
	Checkpoint(ctx context.Context, c Checkpoint) error

	// Due returns parked deliveries of the lane that are due at now: retrying
	// ones, scheduled and cancelled ones whose key has nothing parked before them, and
	// settling and dead ones whose hook is to be called again, in the order in which they
	// fell due. next is when the next one of the sink falls due, whatever its lane; zero
	// when nothing is waiting for a time.
	Due(ctx context.Context, q DueQuery) (due []Parked, next time.Time, err error)

	// Followers returns, for each of the keys, its first limit parked deliveries that hold
	// back later ones, in log order: retrying and blocked ones, and with halt also dead
	// ones. Blocked ones before which there is no other are free to go. They are grouped
	// by key, in the order of keys, each of which is given once and not empty.
	//
	// Where the payloads add up to some megabytes it ends early: keys[:answered] are
	// answered completely, and nothing is returned of the others. Of a key whose own
	// payloads are that large, the first ones are its answer. At least one key is
	// answered, unless there is none.
	Followers(ctx context.Context, lane Lane, keys []string, halt bool, limit int) (parked []Parked, answered int, err error)

	// HeldKeys lists the keys of the lane that parked deliveries hold back: retrying
	// and blocked ones, and with halt also dead ones. It returns those behind after,
	// at most limit, in the order in which the database compares keys; after "" it
	// begins with the first. The empty key never holds anything back and is left out.
	HeldKeys(ctx context.Context, lane Lane, halt bool, after string, limit int) ([]HeldKey, error)

	// KeepsReceipts reports whether checkpoints archive receipts. Where not, they
	// need not be gathered.
	KeepsReceipts() bool
}

// Checkpoint is what was settled since the last one.
type Checkpoint struct {
	Lease Lease
	// TTL is how long the lease lasts from now.
	TTL time.Duration
	// Number counts the checkpoints of a lane, from one lease to the next: the first one of
	// a lease follows Lease.Checkpoint. One that is not above the last one written is written
	// already. 0 is not counted and always written: with nothing but Lease and TTL it renews
	// the lease.
	Number int64
	// Position is behind the last row of the settled prefix. nil leaves the
	// cursor's position and settled offsets as they are.
	Position Position
	// Settled are offsets settled out of order behind Position, ascending.
	Settled []OffsetRange
	// Park are deliveries to insert, or to replace where they are parked already.
	// A blocked one replaces nothing: it comes from the log, and what is parked of
	// it was read before the log was read again.
	Park []Parked
	// Hooked are settling and dead ones that stay parked, and whose hook was called again:
	// DueAt, HookError and HookFailures are replaced where the delivery still has its State.
	// What a person has requeued or discarded meanwhile stays as it is.
	Hooked []Parked
	// Unpark are parked deliveries that are delivered.
	Unpark []Ref
	// Receipts are archived if the store keeps receipts.
	Receipts []Receipt
	// InTx, if set, runs inside the checkpoint's transaction, before its commit.
	// Its error rolls everything back. ErrSpoiled: it returned none, and the transaction
	// cannot be committed.
	InTx func(ctx context.Context, tx *sql.Tx) error
}

// Receipt is a delivery that was made, for the archive.
type Receipt struct {
	Offset      int64
	ID          string
	Receipt     notification.Receipt
	Attempt     int
	DeliveredAt time.Time
}
