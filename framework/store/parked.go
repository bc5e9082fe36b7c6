package store

import (
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// State says why a delivery is parked.
type State string

// The states of a parked delivery.
const (
	// StateRetrying: an attempt failed, the next one is due at DueAt.
	StateRetrying State = "retrying"
	// StateScheduled: the publisher asked for a time, DueAt.
	StateScheduled State = "scheduled"
	// StateBlocked: an earlier delivery of the same key is parked.
	StateBlocked State = "blocked"
	// StateDead: it is not tried again until a person acts.
	StateDead State = "dead"
	// StateSettling: it is delivered, but a hook failed, which is called again at DueAt. It
	// does not hold back its key.
	StateSettling State = "settling"
	// StateCancelled: it was scheduled, and its publisher has cancelled it. It is removed at
	// DueAt. This state is never written: a scheduled delivery is read as cancelled if a
	// cancellation exists.
	StateCancelled State = "cancelled"
)

// SinkUnrouted is the reserved name under which notifications without a route
// are parked as dead.
const SinkUnrouted = "_unrouted"

// SinkPruner is the reserved name whose only lane elects the pruner: the forwarder that leases
// it removes old rows. It is not a sink: nothing is delivered to it or parked for it, and its
// cursor has no position. Forget notes there that sinks were forgotten, since their cursors no
// longer show that the log was in use.
const SinkPruner = "_pruner"

// Parked is a delivery that could not be made when its turn came. It holds the whole envelope,
// so that retention of the log never loses it.
type Parked struct {
	Envelope notification.Envelope
	State    State
	// Attempt is the number of attempts so far.
	Attempt int
	// DueAt is when its next attempt, or the next call of its hook, is due; zero for blocked
	// deliveries, and for dead ones whose hook has succeeded.
	DueAt time.Time
	// LastError is the error of the last attempt.
	LastError string
	// Receipt is the sink's receipt for a settling delivery.
	Receipt notification.Receipt
	// HookError is why the last call of its hook failed, and HookFailures how often in a row
	// hooks failed.
	HookError    string
	HookFailures int
	// FirstParkedAt is when it was first parked; the store keeps the first value written.
	FirstParkedAt time.Time
}

// Ref distinguishes deliveries of one sink. The offset alone is not enough: a truncated log
// assigns the same offsets again, while earlier deliveries are still parked. Nor is the id:
// publishers may choose it.
type Ref struct {
	Offset int64
	ID     string
}

// RefOf returns the Ref of an envelope.
func RefOf(e *notification.Envelope) Ref { return Ref{Offset: e.Offset, ID: e.ID} }

// DueQuery asks for parked deliveries that are due.
type DueQuery struct {
	Lane Lane
	Now  time.Time
	// Limit is how many to return at most.
	Limit int
	// Except are deliveries to leave out, since they are already being worked on.
	Except []Ref
	// Halt reports that dead deliveries also hold back their key.
	Halt bool
}

// HeldKey is a key that parked deliveries hold back.
type HeldKey struct {
	Key string
	// Head reports that one of the deliveries will be tried again, or is dead and halts the
	// key. Without a head, the first blocked one is free to go once all rows before it in the
	// log are settled.
	Head bool
}
