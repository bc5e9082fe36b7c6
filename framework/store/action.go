package store

import (
	"encoding/json"
	"time"
)

// Action is a recorded action of a person.
type Action struct {
	ID  string    `json:"id"`
	At  time.Time `json:"at"`
	Who string    `json:"who"`
	// Address is where the request came from over the network, and Reason why it was made, if
	// known.
	Address string `json:"address,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Name is the name of the action, such as requeue.
	Name string `json:"action"`
	// Filter is what it acts on, as requested.
	Filter json.RawMessage `json:"filter"`
	// Request is a digest of the request that began it; "" if none is kept.
	Request string `json:"-"`
	// Planned is the number of deliveries to change when it began, and Count the number changed
	// so far. Both are 0 for an action that counts nothing.
	Planned int64 `json:"planned,omitempty"`
	Count   int64 `json:"count"`
	// Through is the offset that a replay has reached.
	Through int64 `json:"through,omitempty"`
	// State is the state of the action when it was read.
	State ActionState `json:"state"`
	// UpdatedAt is when its last batch was written, or when it began.
	UpdatedAt time.Time `json:"updated_at,omitzero"`
	// CancelledAt is when CancelledBy cancelled it; zero if it was not cancelled.
	CancelledAt time.Time `json:"cancelled_at,omitzero"`
	CancelledBy string    `json:"cancelled_by,omitempty"`
	// EndedAt is when it ended; zero while it runs, and for good if it was interrupted.
	EndedAt time.Time `json:"ended_at,omitzero"`
}

// ActionState is the state of an action.
type ActionState string

// The states of an action.
const (
	// ActionRunning: it has begun, and its last batch is more recent than ActionSilence.
	ActionRunning ActionState = "running"
	// ActionDone: all of it is done.
	ActionDone ActionState = "done"
	// ActionCancelled: a person cancelled it. What it did before stays.
	ActionCancelled ActionState = "cancelled"
	// ActionInterrupted: it has not ended, but writes nothing any more, because its process
	// ended or met an error.
	ActionInterrupted ActionState = "interrupted"
)

// ActionSilence is how long after its last batch an action counts as interrupted.
const ActionSilence = time.Minute
