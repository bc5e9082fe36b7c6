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
	// StateBlocked: an earlier one of the same key is parked.
	StateBlocked State = "blocked"
	// StateDead: it is not tried again until a person acts.
	StateDead State = "dead"
	// StateSettling: the sink has taken it, and a hook has failed, which is called again
	// at DueAt. It holds nothing else of its key back.
	StateSettling State = "settling"
	// StateCancelled: it was scheduled, and its publisher has cancelled it. It goes at
	// DueAt. It is never written: what is scheduled is read so where it is cancelled.
	StateCancelled State = "cancelled"
)

// SinkUnrouted is the reserved name under which notifications without a route
// are parked as dead.
const SinkUnrouted = "_unrouted"

// SinkPruner is the reserved name whose only lane elects the pruner: the
// forwarder that leases it removes what is no longer needed. It is no sink: nothing is
// delivered or parked under it, and its cursor stands nowhere. Forget notes there that
// sinks were forgotten, since their cursors no longer show that the log was in use.
const SinkPruner = "_pruner"

// Parked is a delivery that could not be made when its turn came. It holds the
// whole envelope, so that retention of the log never takes what is owed.
type Parked struct {
	Envelope notification.Envelope
	State    State
	// Attempt is how many attempts were spent.
	Attempt int
	// DueAt is when it is tried next, or its hook is called next; zero for blocked
	// ones, and for dead ones whose hook has succeeded.
	DueAt time.Time
	// LastError is what the last attempt came to.
	LastError string
	// Receipt is the sink's, of one that is settling.
	Receipt notification.Receipt
	// HookError is why the last hook that was called for it failed, and HookFailures how
	// often one did in a row.
	HookError    string
	HookFailures int
	// FirstParkedAt is when it was parked for the first time; the store keeps
	// the first value that was written.
	FirstParkedAt time.Time
}

// Ref distinguishes deliveries of one sink. The offset alone does not: a log that
// was truncated gives the same offsets again, while what was parked before is still
// owed. The id alone does not either: publishers may choose it.
type Ref struct {
	Offset int64
	ID     string
}

// RefOf names the delivery of an envelope.
func RefOf(e *notification.Envelope) Ref { return Ref{Offset: e.Offset, ID: e.ID} }

// DueQuery asks for parked deliveries whose time has come.
type DueQuery struct {
	Lane Lane
	Now  time.Time
	// Limit is how many are returned at most.
	Limit int
	// Except are left out: those that are worked on already.
	Except []Ref
	// Halt reports that dead ones hold back their key as well.
	Halt bool
}

// HeldKey is a key that parked deliveries hold back.
type HeldKey struct {
	Key string
	// Head reports that one of them will be tried again, or is dead and halts the
	// key. Without a head the first blocked one is free to go, once all that comes
	// before it in the log is settled.
	Head bool
}
