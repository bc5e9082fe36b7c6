package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Log is the log as a forwarder reads it.
type Log interface {
	// Probe finds out how far the log reaches now. It is one tiny query; one probe serves the
	// readers of all sinks and lanes of a process.
	Probe(ctx context.Context) (Target, error)

	// NewReader returns a reader that continues at a cursor's position; nil begins at the oldest
	// row. It reads nothing yet. It fails with ErrPosition if another dialect or a newer program
	// wrote the position.
	NewReader(position json.RawMessage, filter Filter) (Reader, error)
}

// Filter says which rows a reader returns; it skips the others.
type Filter struct {
	Slots SlotRange
	Types notification.TypeFilter
	// Since and Until select rows that occurred at Since or later, and before Until. The zero
	// value means no bound.
	Since, Until time.Time
	// Server is the Server of the lease. For targets of another life of the server the reader
	// returns ErrServerChanged. "" means the life of the first target.
	Server string
}

// Target is an upper bound of the log: the rows that were committed when it was probed. Only
// the store that made it can use it.
type Target interface {
	// Last returns the highest offset assigned at that time. Rows up to it may still be
	// uncommitted.
	Last() int64
}

// Position is a place between two rows, in the order in which a reader sees them. The engine
// keeps positions and passes them to checkpoints; only the dialect knows their content.
type Position interface {
	json.Marshaler
}

// Reader walks through the log for one sink and lane, in log order: for each key, the order in
// which its transactions committed, provided they serialized on any lock.
//
// A reader keeps its place in memory and is not safe for concurrent use.
type Reader interface {
	// Next returns the next rows that are committed as of target, at most limit. A target
	// older than an earlier one adds nothing, but rows within the earlier one may still follow.
	// After a page that is short because of the payloads' size, there are more.
	//
	// After an error, Next can be called again and repeats no row of an earlier page. After
	// ErrServerChanged, however, a new reader must begin at the stored position.
	//
	// Next skips rows whose cancellation was committed when it was called, or at Page.Asked if
	// the reader sets that, and possibly others cancelled later.
	Next(ctx context.Context, target Target, limit int) (Page, error)
}

// Looker is a Reader that can find out how far the log reaches, and read what was added, in one
// statement.
type Looker interface {
	Reader
	// Look is Log.Probe. If the reader has read everything up to its last target, and little
	// was added since, the new target includes the new rows, and Next with it does not query the
	// database.
	Look(ctx context.Context) (Target, error)
}

// Page is a sequence of rows and the positions between them.
type Page struct {
	Envelopes []notification.Envelope
	// Start is the position before the first row.
	Start Position
	// End is the position after the last row, and after all rows that the reader skipped.
	End Position
	// Asked is a time at which, or after which, the database was queried. Later cancellations
	// are not known. A reader sets it if that was before Next was called, as when it reads ahead. Zero
	// means the time of the call, which the engine then sets.
	Asked time.Time
	// CaughtUp reports that there is nothing more as of the target.
	CaughtUp bool
	// Rebased says, once, why the reader had to start over at the oldest row: the log that it
	// knew is gone, and offsets settled in it mean nothing any more. It is usually "".
	Rebased string

	// After returns the position after Envelopes[i].
	After func(i int) Position
}
