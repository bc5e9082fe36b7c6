package store

import (
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// PendingLimit is where Status and Sample stop counting the pending rows of a sink, in all its
// lanes together, oldest first.
const PendingLimit = 10_000

// CountTime is how long Status and Sample count pending rows. Each sink has a share of the time,
// and at least one statement. The whole log is searched for rows of rare types.
const CountTime = 500 * time.Millisecond

// StatusQuery is what the caller knows about the outbox.
type StatusQuery struct {
	// Types are the types of each sink, by its name. Rows of other types are not pending for it.
	// For a sink that is left out, rows of all types count.
	Types map[string]notification.TypeFilter
}

// TypesOf returns the types to count for a sink, and whether the caller named them.
func (q StatusQuery) TypesOf(sink string) (types notification.TypeFilter, named bool) {
	if types, named = q.Types[sink]; !named {
		types = notification.AllTypes
	}
	return types, named
}

// Status is the state of an outbox, for people.
type Status struct {
	// Source is the name of the source that is the log; "" for the database's own log.
	Source string `json:"source,omitempty"`
	// LastOffset is the highest assigned offset; for a source, the number of records so far.
	LastOffset int64 `json:"last_offset"`
	// Oldest is the first row that is still in the log, or nil.
	Oldest  *Row           `json:"oldest"`
	Cursors []CursorStatus `json:"cursors"`
	// Parked counts parked deliveries up to ParkedLimit of each sink and state.
	Parked []ParkedCount `json:"parked"`
	// Holders are the sinks that keep rows in the log, since they have not settled them.
	Holders []Holder `json:"holders"`
}

// CursorStatus is the state of one lane of a sink.
type CursorStatus struct {
	Sink string `json:"sink"`
	Lane int    `json:"lane"`
	// Pending is the number of committed rows of the sink's types that are not settled yet. Only
	// the first PendingLimit rows of all lanes of the sink are counted.
	Pending int `json:"pending"`
	// Uncounted reports that there may be more, because counting stopped at the limit or ran
	// out of time.
	Uncounted bool `json:"uncounted,omitempty"`
	// AllTypes reports that Pending counts rows of any type, since StatusQuery does not name
	// the sink.
	AllTypes bool `json:"all_types,omitempty"`
	// Owner is the forwarder that has leased the lane; "" if none has.
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
	// HookError is the error of a failed hook of one of them; "" if none failed.
	HookError string `json:"hook_error,omitempty"`
}
