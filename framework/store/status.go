package store

import "time"

// PendingLimit is where Status stops counting what a cursor has before it.
const PendingLimit = 100_000

// Status is one look at an outbox, for people.
type Status struct {
	// LastOffset is the highest offset handed out.
	LastOffset int64 `json:"last_offset"`
	// Oldest is the first row that is still in the log; nil if there is none.
	Oldest  *Row           `json:"oldest"`
	Cursors []CursorStatus `json:"cursors"`
	Parked  []ParkedCount  `json:"parked"`
	// Holders are the sinks that have not settled all of the log, and so keep
	// rows in it.
	Holders []Holder `json:"holders"`
}

// CursorStatus is how one sink stands with one lane.
type CursorStatus struct {
	Sink string `json:"sink"`
	Lane int    `json:"lane"`
	// Pending counts committed rows of any type that are not settled yet, up to
	// PendingLimit.
	Pending int `json:"pending"`
	// Owner is the forwarder that holds the lease; "" if none does.
	Owner      string    `json:"owner,omitempty"`
	Epoch      int64     `json:"epoch"`
	Paused     bool      `json:"paused,omitempty"`
	LeaseUntil time.Time `json:"lease_until,omitzero"`
	UpdatedAt  time.Time `json:"updated_at"`
}

// ParkedCount is how many deliveries of a sink are parked in one state.
type ParkedCount struct {
	Sink  string `json:"sink"`
	State State  `json:"state"`
	Count int64  `json:"count"`
}
