// Package event has what a forwarder reports to its observer: attempts, batches, parked deliveries, checkpoints, leases,
// breakers, throttling, looks at the log, failures of the database and what retention removes.
package event

import (
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// Observer gets reports of what a forwarder does. It is called from many goroutines, some of which hold locks of the
// engine: it must be quick and must not call the forwarder. It has no transaction and does not affect deliveries.
// Without an observer nothing is measured.
type Observer interface {
	// Observe gets one event, which is valid until Observe returns:
	//
	//	switch e := e.(type) {
	//	case *event.Attempt:
	//	case *event.Parked:
	//	}
	Observe(e Event)
}

// Func is a function that observes a forwarder.
type Func func(e Event)

// Observe implements Observer.
func (f Func) Observe(e Event) { f(e) }

// Tell reports an event to an observer; nil means that there is no observer.
func Tell(o Observer, e Event) {
	if o != nil {
		o.Observe(e)
	}
}

// Event is one of the types of this package, as a pointer: Attempt, Batch, Parked, Checkpoint, LeaseChange,
// BreakerChange, Throttling, Look, DatabaseFailure, Rebase or Pruned.
type Event interface{ isEvent() }

// Attempt is one attempt of one delivery, when the sink has answered; there is one for each delivery of a batch.
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

// Batch is one call of a sink with a batch. It comes before the batch's attempts.
type Batch struct {
	Sink       string
	Deliveries int
	Began      time.Time
	Duration   time.Duration
}

// Parked is a delivery that could not be made now, when that is written. Hooks get it too.
type Parked struct {
	*notification.Delivery
	// State is why it is parked: retrying, scheduled, blocked, quiet or dead.
	State store.State
	// DueAt is when its next attempt is due; zero for blocked and dead ones.
	DueAt time.Time
	// Error is the error of the last attempt without its class, which the first of Attempts has; "" if there was none.
	Error string
	// Attempts are the last failed attempts, at most five, the newest first.
	Attempts []store.PastAttempt
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

// DeadReasons returns all reasons why deliveries are dead.
func DeadReasons() []DeadReason {
	return []DeadReason{DeadAttempts, DeadRefused, DeadUnknown, DeadRoute}
}

// String returns a word for the reason, such as attempts.
func (r DeadReason) String() string {
	return [...]string{"", "attempts", "refused", "unknown", "route"}[r]
}

// Checkpoint is a checkpoint that was written.
type Checkpoint struct {
	Lane     store.Lane
	Settled  int // number of deliveries that it settled
	Began    time.Time
	Duration time.Duration
}

// LeaseChange is the begin or end of this forwarder's work on a lane.
type LeaseChange struct {
	Lane store.Lane
	// Won means that the work begins.
	Won bool
	// Err is why it ends; nil if the forwarder released the lane.
	Err error
}

// BreakerChange is a breaker that opens, with its cause, or closes.
type BreakerChange struct {
	Sink string
	// Destination is the destination whose breaker it is; "" for the sink's own.
	Destination string
	Open        bool
	Cause       error
}

// Throttling is a sink that begins to wait because its destination asked it to.
type Throttling struct {
	Sink  string
	Until time.Time
	Cause error
}

// LookCause is why a forwarder looks at the log.
type LookCause string

// The causes of a look.
const (
	LookPoll     LookCause = "poll"     // the pause was over
	LookAsked    LookCause = "asked"    // Forwarder.Wake was called, or a lane begins
	LookListened LookCause = "listened" // the database announced new rows
)

// Look is one look at the log, which is a round trip to the database.
type Look struct {
	Cause LookCause
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

// DatabaseOps returns all operations on the database.
func DatabaseOps() []DatabaseOp {
	return []DatabaseOp{OpLook, OpRead, OpListen, OpLease, OpCheckpoint, OpParked, OpPrune}
}

// DatabaseFailure is an operation on the database that has failed; it is tried again.
type DatabaseFailure struct {
	Op  DatabaseOp
	Err error
	// Database is the name of the database; "" if there is a single one.
	Database string
}

// Rebase is a lane that reads the log again from its oldest row, since the log that it knew is gone.
type Rebase struct {
	Lane   store.Lane
	Reason string
}

// Pruned is what one pass of the pruner has removed.
type Pruned struct {
	Rows       int // of the log, one by one
	Receipts   int
	Partitions int // of the log, with all their rows
	// Database is the name of the database; "" if there is a single one.
	Database string
}

func (*Attempt) isEvent()         {}
func (*Batch) isEvent()           {}
func (*Parked) isEvent()          {}
func (*Checkpoint) isEvent()      {}
func (*LeaseChange) isEvent()     {}
func (*BreakerChange) isEvent()   {}
func (*Throttling) isEvent()      {}
func (*Look) isEvent()            {}
func (*DatabaseFailure) isEvent() {}
func (*Rebase) isEvent()          {}
func (*Pruned) isEvent()          {}
