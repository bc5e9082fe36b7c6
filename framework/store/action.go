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
	// Name is what was done, such as requeue.
	Name string `json:"action"`
	// Filter is what it was done to, as it was asked for.
	Filter json.RawMessage `json:"filter"`
	// Count is to how much it was done, so far.
	Count int64 `json:"count"`
	// Through is the offset up to which a replay has got.
	Through int64 `json:"through,omitempty"`
	// EndedAt is zero while it is under way, and stays so if it was interrupted.
	EndedAt time.Time `json:"ended_at,omitzero"`
}
