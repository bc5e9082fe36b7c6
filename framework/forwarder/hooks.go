package forwarder

import (
	"slices"

	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
)

// Hooks are called with what becomes of deliveries, in the transaction of the checkpoint
// that writes it down: their effects commit with it, or not at all. See the fields
// Delivered, Parked and Dead.
//
// A hook is called with at most 1,000 deliveries and must be quick; its context ends
// after a third of the lease. It neither commits nor rolls back. One that returns nil for a transaction that has ended or cannot be
// committed, since a statement of it failed or a deferred constraint is broken, has failed. A delivery for which it fails is held back, and no other: it
// is parked as settling, or as dead, with the hook's error, is not delivered again, and its
// Delivered or Dead is called again after 1 s, then 2 s, and so on up to 5 min, until it
// succeeds. Parked is not called again for the same attempt. After a crash, a delivery that
// is repeated reaches the hook again as well.
type Hooks = policy.Hooks

// Parked is a delivery that could not be made: Delivery, State, DueAt, Error and Reason.
type Parked = policy.Parked

// DeadReason is why a delivery is not tried any more; String has it in a word.
type DeadReason = policy.DeadReason

// The reasons: its attempts are spent; it was refused for good; it is older than
// retry.max_age; its type or version stayed unknown for too long; an expression of its route
// failed. DeadNot is for what is not dead.
const (
	DeadNot      = policy.DeadNot
	DeadAttempts = policy.DeadAttempts
	DeadRefused  = policy.DeadRefused
	DeadTooOld   = policy.DeadTooOld
	DeadUnknown  = policy.DeadUnknown
	DeadRoute    = policy.DeadRoute
)

// DeadReasons lists why deliveries are given up.
func DeadReasons() []DeadReason {
	return []DeadReason{DeadAttempts, DeadRefused, DeadTooOld, DeadUnknown, DeadRoute}
}

// Delivered is a delivery that a sink has taken: Delivery and Receipt.
type Delivered = policy.Delivered

// Observer is called with what a forwarder does: attempts, batches, what is parked and
// dead, checkpoints, leases, breakers, throttling, looks at the log, errors of the database
// and what retention removes. It is called
// from many goroutines, some of which hold locks of the engine: it must be quick and
// must not call the forwarder. It needs no transaction and changes nothing of how
// deliveries are made; without an observer nothing is measured. Embed [Unobserved] and
// write the methods that you need.
type Observer = policy.Observer

// What an Observer is called with.
type (
	Attempt       = policy.Attempt       // one attempt of one delivery
	Batch         = policy.Batch         // one call of a sink of batches
	Checkpoint    = policy.Checkpoint    // one that was written
	BreakerChange = policy.BreakerChange // a breaker that opens or closes
	Throttling    = policy.Throttling    // a sink that waits for its destination
	Wake          = policy.Wake          // one look at the log
	WakeCause     = policy.WakeCause     // why
	DatabaseOp    = policy.DatabaseOp    // what the database was used for when it failed
	Pruned        = policy.Pruned        // what retention has removed
)

// The causes of a look at the log.
const (
	WakePoll     = policy.WakePoll
	WakeAsked    = policy.WakeAsked
	WakeListened = policy.WakeListened
)

// The uses of the database.
const (
	OpLook       = policy.OpLook
	OpRead       = policy.OpRead
	OpListen     = policy.OpListen
	OpLease      = policy.OpLease
	OpCheckpoint = policy.OpCheckpoint
	OpParked     = policy.OpParked
	OpPrune      = policy.OpPrune
)

// DatabaseOps lists all uses of the database.
func DatabaseOps() []DatabaseOp { return slices.Clone(policy.DatabaseOps) }

// Unobserved is an Observer that does nothing, to be embedded.
type Unobserved = policy.Unobserved
