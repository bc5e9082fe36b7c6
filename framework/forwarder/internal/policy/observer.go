package policy

import (
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// Observer is called with what a forwarder does. Package forwarder documents it for programs.
type Observer interface {
	// Attempt is called when the sink has answered, once for each delivery of a batch.
	Attempt(Attempt)
	// Batch is called when a sink has answered a batch, before its attempts.
	Batch(Batch)
	// Parked is called when a delivery is written as retrying, scheduled or blocked.
	Parked(Parked)
	// Dead is called when a delivery is written as dead.
	Dead(Parked)
	// Checkpoint is called when a checkpoint is written.
	Checkpoint(Checkpoint)
	// LeaseWon is called when this forwarder begins to work on a lane, and LeaseLost when it
	// ends; err is nil if it released the lane.
	LeaseWon(lane store.Lane)
	LeaseLost(lane store.Lane, err error)
	// Breaker is called when a sink's breaker opens or closes.
	Breaker(BreakerChange)
	// Throttle is called when a sink begins to wait because its destination asked it to.
	Throttle(Throttling)
	// Wake is called after the forwarder has looked at the log, which is a round trip to the
	// database.
	Wake(Wake)
	// DatabaseError is called when an operation on the database has failed; it is tried again.
	// With several databases, err is a *DatabaseError.
	DatabaseError(op DatabaseOp, err error)
	// Rebased is called when a lane reads the log again from its oldest row, with the reason: the
	// log that it knew is gone.
	Rebased(lane store.Lane, reason string)
	// Pruned is called when old rows were removed.
	Pruned(Pruned)
}

// Attempt is one attempt of one delivery.
type Attempt struct {
	Delivery *notification.Delivery
	// Err is why it failed, nil if it succeeded; Class is the class of Err.
	Err     error
	Class   sinks.Class
	Receipt notification.Receipt
	Began   time.Time
	// Duration is the duration of the sink's call, until the engine has noted its end; in a
	// batch, that of the whole batch.
	Duration time.Duration
}

// Batch is one call of a sink with a batch.
type Batch struct {
	Sink       string
	Deliveries int
	Began      time.Time
	Duration   time.Duration
}

// Checkpoint is a checkpoint that was written.
type Checkpoint struct {
	Lane     store.Lane
	Settled  int // number of deliveries that it settled
	Began    time.Time
	Duration time.Duration
}

// BreakerChange is a breaker that opens, with its cause, or closes.
type BreakerChange struct {
	Sink string
	// Destination is the destination whose breaker it is; "" for the sink's own.
	Destination string
	Open        bool
	Cause       error
}

// Throttling is a sink that waits because its destination asked it to.
type Throttling struct {
	Sink  string
	Until time.Time
	Cause error
}

// WakeCause is why a forwarder looks at the log.
type WakeCause string

// The causes of a look.
const (
	WakePoll     WakeCause = "poll"     // the pause was over
	WakeAsked    WakeCause = "asked"    // Forwarder.Wake was called, or a lane begins
	WakeListened WakeCause = "listened" // the database announced new rows
)

// Wake is one look at the log.
type Wake struct {
	Cause WakeCause
	// Grown reports that the log has grown since the last look.
	Grown bool
	// Database is the name of the database; "" if there is a single one.
	Database string
	Began    time.Time
	Duration time.Duration
}

// DatabaseOp is an operation on the database.
type DatabaseOp string

// The operations on the database.
const (
	OpLook       DatabaseOp = "look"       // looking how far the log reaches
	OpRead       DatabaseOp = "read"       // reading rows of the log
	OpListen     DatabaseOp = "listen"     // listening to announcements
	OpLease      DatabaseOp = "lease"      // leases, heartbeats, membership
	OpCheckpoint DatabaseOp = "checkpoint" // writing the outcome of deliveries
	OpParked     DatabaseOp = "parked"     // reading parked deliveries
	OpPrune      DatabaseOp = "prune"      // removing old rows
)

// DatabaseOps are all operations.
var DatabaseOps = []DatabaseOp{OpLook, OpRead, OpListen, OpLease, OpCheckpoint, OpParked, OpPrune}

// Pruned is what one pass of the pruner has removed.
type Pruned struct {
	Rows       int // of the log, one by one
	Receipts   int
	Partitions int // of the log, with all their rows
	// Database is the name of the database; "" if there is a single one.
	Database string
}

// Failed reports a failed operation on the database to an observer, which may be nil.
func Failed(o Observer, op DatabaseOp, err error) {
	if o != nil {
		o.DatabaseError(op, err)
	}
}

// Unobserved is an Observer that does nothing. Embed it.
type Unobserved struct{}

var _ Observer = Unobserved{}

// Attempt does nothing.
func (Unobserved) Attempt(Attempt) {}

// Batch does nothing.
func (Unobserved) Batch(Batch) {}

// Parked does nothing.
func (Unobserved) Parked(Parked) {}

// Dead does nothing.
func (Unobserved) Dead(Parked) {}

// Checkpoint does nothing.
func (Unobserved) Checkpoint(Checkpoint) {}

// LeaseWon does nothing.
func (Unobserved) LeaseWon(store.Lane) {}

// LeaseLost does nothing.
func (Unobserved) LeaseLost(store.Lane, error) {}

// Breaker does nothing.
func (Unobserved) Breaker(BreakerChange) {}

// Throttle does nothing.
func (Unobserved) Throttle(Throttling) {}

// Wake does nothing.
func (Unobserved) Wake(Wake) {}

// DatabaseError does nothing.
func (Unobserved) DatabaseError(DatabaseOp, error) {}

// Rebased does nothing.
func (Unobserved) Rebased(store.Lane, string) {}

// Pruned does nothing.
func (Unobserved) Pruned(Pruned) {}
