package store

import (
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// PendingLimit is where Status and Sample stop counting what a sink has before it, over all of its
// lanes, the oldest first.
const PendingLimit = 10_000

// CountTime is for how long Status and Sample count what sinks have before them, each for its share
// of the time and for one statement at least. Rows of a type that is rare in the log
// are looked for in all of it.
const CountTime = 500 * time.Millisecond

// StatusQuery is what the caller knows of the outbox.
type StatusQuery struct {
	// Types are those that go to each sink, by its name. Rows of other types are not
	// pending for it. A sink that is left out counts rows of all types.
	Types map[string]notification.TypeFilter
}

// TypesOf are those to count for a sink, and whether the caller named them.
func (q StatusQuery) TypesOf(sink string) (types notification.TypeFilter, named bool) {
	if types, named = q.Types[sink]; !named {
		types = notification.AllTypes
	}
	return types, named
}

// Status is one look at an outbox, for people.
type Status struct {
	// Source is the name of the source that is the log; "" where that is in the database.
	Source string `json:"source,omitempty"`
	// LastOffset is the highest offset handed out; of a source how many records there were.
	LastOffset int64 `json:"last_offset"`
	// Oldest is the first row that is still in the log; nil if there is none.
	Oldest  *Row           `json:"oldest"`
	Cursors []CursorStatus `json:"cursors"`
	// Parked counts up to ParkedLimit of each sink and state.
	Parked []ParkedCount `json:"parked"`
	// Holders are the sinks that have not settled all of the log, and so keep
	// rows in it.
	Holders []Holder `json:"holders"`
}

// CursorStatus is how one sink stands with one lane.
type CursorStatus struct {
	Sink string `json:"sink"`
	Lane int    `json:"lane"`
	// Pending counts committed rows of the sink's types that are not settled yet: of the first
	// PendingLimit that the sink has in all its lanes.
	Pending int `json:"pending"`
	// Uncounted says that there may be more: counting stopped at the limit, or there was no
	// time for it.
	Uncounted bool `json:"uncounted,omitempty"`
	// AllTypes says that Pending counts rows of any type: StatusQuery does not name
	// the sink's.
	AllTypes bool `json:"all_types,omitempty"`
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
	// HookError is why a hook failed for one of them; "" if none did.
	HookError string `json:"hook_error,omitempty"`
}
