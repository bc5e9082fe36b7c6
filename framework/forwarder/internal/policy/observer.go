package policy

import (
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// Observer is called with what a forwarder does: metrics, traces and pages are built on
// it. It is called from many goroutines, some of which hold locks of the engine, so it
// must be quick and must not call the forwarder. It needs no transaction and changes
// nothing of how deliveries are made; without an observer nothing is measured.
//
// Embed [Unobserved] and write the methods that you need: then a method that is added
// here breaks nothing.
type Observer interface {
	// Attempt is called when the sink has answered, once for each delivery of a batch.
	Attempt(Attempt)
	// Batch is called when a sink of batches has answered, before its attempts.
	Batch(Batch)
	// Parked is called when a delivery is written as retrying, scheduled or blocked.
	Parked(Parked)
	// Dead is called when a delivery is written as dead.
	Dead(Parked)
	// Checkpoint is called when a checkpoint is written.
	Checkpoint(Checkpoint)
	// LeaseWon is called when this forwarder begins to work on a lane, and LeaseLost
	// when it no longer does: given back if err is nil.
	LeaseWon(lane store.Lane)
	LeaseLost(lane store.Lane, err error)
	// Breaker is called when a sink's breaker opens or closes.
	Breaker(BreakerChange)
	// Throttle is called when a sink begins to wait because its destination asked it to.
	Throttle(Throttling)
	// Wake is called when the forwarder has looked at the log, which is a round trip to the
	// database.
	Wake(Wake)
	// DatabaseError is called when a use of the database failed and is tried again. Of one of several
	// databases err is a *DatabaseError.
	DatabaseError(op DatabaseOp, err error)
	// Rebased is called when a lane reads the log again from its oldest row, and why: the
	// log that it knew is gone.
	Rebased(lane store.Lane, reason string)
	// Pruned is called when old rows were removed.
	Pruned(Pruned)
}

// Attempt is one attempt of one delivery.
type Attempt struct {
	Delivery *notification.Delivery
	// Err is why it failed, nil if it was delivered; Class is the class of Err.
	Err     error
	Class   sinks.Class
	Receipt notification.Receipt
	Began   time.Time
	// Duration is that of the call of the sink, until the engine has noted its end: in a batch,
	// of the whole batch.
	Duration time.Duration
}

// Batch is one call of a sink of batches.
type Batch struct {
	Sink       string
	Deliveries int
	Began      time.Time
	Duration   time.Duration
}

// Checkpoint is one that was written.
type Checkpoint struct {
	Lane     store.Lane
	Settled  int // deliveries whose turn it ended
	Began    time.Time
	Duration time.Duration
}

// BreakerChange is a breaker that opens, because of a cause, or closes.
type BreakerChange struct {
	Sink string
	// Destination is the one of the sink's whose breaker it is; "" for the sink's own.
	Destination string
	Open        bool
	Cause       error
}

// Throttling is a sink that waits.
type Throttling struct {
	Sink  string
	Until time.Time
	Cause error
}

// WakeCause says why a forwarder looks at the log.
type WakeCause string

// The causes of a look.
const (
	WakePoll     WakeCause = "poll"     // the pause was over
	WakeAsked    WakeCause = "asked"    // Forwarder.Wake, or a lane that begins
	WakeListened WakeCause = "listened" // the database announced new rows
)

// Wake is one look at the log.
type Wake struct {
	Cause WakeCause
	// Grown says that the log has grown since the last look.
	Grown bool
	// Database is the one of several that was looked at; "" where there is one.
	Database string
	Began    time.Time
	Duration time.Duration
}

// DatabaseOp is what a forwarder uses the database for.
type DatabaseOp string

// The uses of the database.
const (
	OpLook       DatabaseOp = "look"       // how far the log reaches
	OpRead       DatabaseOp = "read"       // rows of the log
	OpListen     DatabaseOp = "listen"     // announcements
	OpLease      DatabaseOp = "lease"      // leases, heartbeats, membership
	OpCheckpoint DatabaseOp = "checkpoint" // what became of deliveries
	OpParked     DatabaseOp = "parked"     // reading what is parked
	OpPrune      DatabaseOp = "prune"      // removing old rows
)

// DatabaseOps lists all of them.
var DatabaseOps = []DatabaseOp{OpLook, OpRead, OpListen, OpLease, OpCheckpoint, OpParked, OpPrune}

// Pruned is what one pass over old rows has removed.
type Pruned struct {
	Rows       int // of the log, one by one
	Receipts   int
	Partitions int // of the log, with all their rows
	// Database is the one of several in which they were; "" where there is one.
	Database string
}

// Failed reports a use of the database that failed to an observer; nil: to none.
func Failed(o Observer, op DatabaseOp, err error) {
	if o != nil {
		o.DatabaseError(op, err)
	}
}

// Unobserved is an Observer that does nothing, to be embedded.
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
