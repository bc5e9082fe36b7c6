package store

import (
	"encoding/json"
	"time"
)

// Action is something that a person has done.
type Action struct {
	ID  string    `json:"id"`
	At  time.Time `json:"at"`
	Who string    `json:"who"`
	// Address is from where it was asked for over the network, and Reason why, as far as
	// that is known.
	Address string `json:"address,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Name is what was done, such as requeue.
	Name string `json:"action"`
	// Filter is what it was done to, as it was asked for.
	Filter json.RawMessage `json:"filter"`
	// Request is a digest of the request that began it; "" where none is kept.
	Request string `json:"-"`
	// Planned is how much there was to do when it began, and Count to how much it was
	// done, so far. Both are 0 where there is nothing to count.
	Planned int64 `json:"planned,omitempty"`
	Count   int64 `json:"count"`
	// Through is the offset up to which a replay has got.
	Through int64 `json:"through,omitempty"`
	// State is where it is, as of when it was read.
	State ActionState `json:"state"`
	// UpdatedAt is when its last batch was written, or it began.
	UpdatedAt time.Time `json:"updated_at,omitzero"`
	// CancelledAt is when CancelledBy has cancelled it; zero if that has not happened.
	CancelledAt time.Time `json:"cancelled_at,omitzero"`
	CancelledBy string    `json:"cancelled_by,omitempty"`
	// EndedAt is zero while it is under way, and stays so if it was interrupted.
	EndedAt time.Time `json:"ended_at,omitzero"`
}

// ActionState is where an action is.
type ActionState string

// The states of an action.
const (
	// ActionRunning: it has begun, and its last batch is younger than ActionSilence.
	ActionRunning ActionState = "running"
	// ActionDone: all of it is done.
	ActionDone ActionState = "done"
	// ActionCancelled: it does nothing more. What it had done before stays.
	ActionCancelled ActionState = "cancelled"
	// ActionInterrupted: it writes nothing any more, and has not ended: its process ended,
	// or met an error.
	ActionInterrupted ActionState = "interrupted"
)

// ActionSilence is how long an action may go without a batch before it is taken for
// interrupted.
const ActionSilence = time.Minute
