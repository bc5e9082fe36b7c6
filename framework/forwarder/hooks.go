package forwarder

import (
	"slices"

	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
)

// Hooks are called with the results of deliveries, in the transaction of the checkpoint that
// writes them: what hooks write commits with it, or not at all. Its fields, of which any may be
// nil:
//
//	Delivered func(ctx context.Context, tx *sql.Tx, delivered []Delivered) error
//	Parked    func(ctx context.Context, tx *sql.Tx, parked []Parked) error // now retrying, scheduled or blocked
//	Dead      func(ctx context.Context, tx *sql.Tx, dead []Parked) error
//
// A hook gets at most 1,000 deliveries and must be quick: its context ends after a third of
// the lease. It must neither commit nor roll back. If it returns nil but the transaction has
// ended or cannot commit, because a statement failed or a deferred constraint is violated, it
// counts as failed.
//
// Only the deliveries for which a hook fails are held back. Such a delivery is parked with the
// hook's error, as settling or dead, and is not delivered again. Its Delivered or Dead hook is
// called again after 1 s, then 2 s, and so on up to every 5 min, until it succeeds. Parked is
// not called again for the same attempt. After a crash, a repeated delivery also reaches the
// hooks again.
type Hooks = policy.Hooks

// Parked is a delivery that could not be made now. It embeds the *notification.Delivery. Its other
// fields:
//
//   - State store.State: why it is parked
//   - DueAt time.Time: when its next attempt is due; zero for blocked and dead ones
//   - Error string: the error of the last attempt; "" if there was none
//   - Reason DeadReason: why it is dead; DeadNot if it is not
type Parked = policy.Parked

// DeadReason is why a delivery is dead; String returns a word for it.
type DeadReason = policy.DeadReason

// The reasons why a delivery is dead: it failed until retry.max_age or max_attempts; the sink or its
// destination refused it; its type or version stayed unknown for too long; an expression
// of its route failed. DeadNot means that the delivery is not dead.
const (
	DeadNot      = policy.DeadNot
	DeadAttempts = policy.DeadAttempts
	DeadRefused  = policy.DeadRefused
	DeadUnknown  = policy.DeadUnknown
	DeadRoute    = policy.DeadRoute
)

// DeadReasons returns all reasons why deliveries are dead.
func DeadReasons() []DeadReason {
	return []DeadReason{DeadAttempts, DeadRefused, DeadUnknown, DeadRoute}
}

// Delivered is a delivery that succeeded: it embeds the *notification.Delivery, and has its
// Receipt.
type Delivered = policy.Delivered

// Observer is called with what a forwarder does: attempts, batches, parked and dead
// deliveries, checkpoints, leases, breakers, throttling, looks at the log, database errors and
// what retention removes. It is called from many goroutines, some of which hold locks of the
// engine: it must be quick and must not call the forwarder. It has no transaction and does not
// affect deliveries. Without an observer nothing is measured. Embed [Unobserved] and implement
// the methods that you need:
//
//	Attempt(Attempt)                         // the sink has answered; once for each delivery of a batch
//	Batch(Batch)                             // a sink has answered a batch, before its attempts
//	Parked(Parked)                           // a delivery is written as retrying, scheduled or blocked
//	Dead(Parked)                             // a delivery is written as dead
//	Checkpoint(Checkpoint)                   // a checkpoint is written
//	LeaseWon(lane store.Lane)                // this forwarder begins to work on a lane
//	LeaseLost(lane store.Lane, err error)    // that ends; err is nil if it released the lane
//	Breaker(BreakerChange)                   // a sink's breaker opens or closes
//	Throttle(Throttling)                     // a sink waits because its destination asked it to
//	Wake(Wake)                               // the forwarder has looked at the log
//	DatabaseError(op DatabaseOp, err error)  // an operation failed; it is tried again
//	Rebased(lane store.Lane, reason string)  // a lane reads the log again from its oldest row
//	Pruned(Pruned)                           // old rows were removed
type Observer = policy.Observer

// Arguments of an Observer. The field Database, if there is one, is the name of the database, "" if there
// is a single one.
type (
	// Attempt is one attempt of one Delivery, which Began at a time: Err with its Class if it
	// failed, otherwise the Receipt. Duration is that of the sink's call, until the engine has
	// noted its end; in a batch, that of the whole batch.
	Attempt = policy.Attempt
	// Batch is one call of a Sink with a number of Deliveries: when it Began, and its Duration.
	Batch = policy.Batch
	// Checkpoint is a checkpoint of a Lane that was written: how many deliveries it Settled, when
	// it Began, and its Duration.
	Checkpoint = policy.Checkpoint
	// BreakerChange is a breaker of a Sink that is now Open, with its Cause, or closed. It is that
	// of a Destination, or the sink's own if Destination is "".
	BreakerChange = policy.BreakerChange
	// Throttling is a Sink that waits Until a time because its destination asked it to, by the
	// error Cause.
	Throttling = policy.Throttling
	// Wake is one look at the log: its Cause, whether the log has Grown since the look before,
	// Database, when it Began, and its Duration.
	Wake = policy.Wake
	// WakeCause is why the forwarder looked at the log.
	WakeCause = policy.WakeCause
	// DatabaseOp is the operation during which the database failed.
	DatabaseOp = policy.DatabaseOp
	// Pruned is what retention has removed: Rows of the log one by one, whole Partitions of it,
	// and Receipts; and Database.
	Pruned = policy.Pruned
)

// The causes of a look at the log.
const (
	WakePoll     = policy.WakePoll
	WakeAsked    = policy.WakeAsked
	WakeListened = policy.WakeListened
)

// The operations on the database.
const (
	OpLook       = policy.OpLook
	OpRead       = policy.OpRead
	OpListen     = policy.OpListen
	OpLease      = policy.OpLease
	OpCheckpoint = policy.OpCheckpoint
	OpParked     = policy.OpParked
	OpPrune      = policy.OpPrune
)

// DatabaseOps returns all operations on the database.
func DatabaseOps() []DatabaseOp { return slices.Clone(policy.DatabaseOps) }

// Unobserved is an Observer that does nothing. Embed it.
type Unobserved = policy.Unobserved
