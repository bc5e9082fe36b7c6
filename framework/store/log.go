package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Log is what a forwarder reads.
type Log interface {
	// Probe looks how far the log reaches now. It is one tiny query, and one
	// probe serves the readers of all sinks and lanes of a process.
	Probe(ctx context.Context) (Target, error)

	// NewReader continues reading at a cursor's position; nil begins at the
	// oldest row. It reads nothing yet. A position that another dialect or a
	// newer program wrote gives ErrPosition.
	NewReader(position json.RawMessage, filter Filter) (Reader, error)
}

// Filter says which rows a reader returns; it passes over the others.
type Filter struct {
	Slots SlotRange
	Types notification.TypeFilter
	// Since and Until bound when a row occurred: from Since on and before Until. The
	// zero value is no bound.
	Since, Until time.Time
	// Server is the lease's: the reader takes targets of no other life of a server, and
	// gives ErrServerChanged for them. "" stands for that of the first target.
	Server string
}

// Target is an upper bound of the log: the rows that were committed when it was
// probed. It belongs to the store that made it.
type Target interface {
	// Last is the highest offset that was handed out by then. Rows up to it may
	// still be uncommitted.
	Last() int64
}

// Position is a place between two rows in the order in which a reader sees
// them. The engine keeps positions and hands them back in a checkpoint; what
// they look like is the dialect's own business.
type Position interface {
	json.Marshaler
}

// Reader walks through the log for one sink and lane, in log order: for each
// key, the order in which its transactions committed, as long as they
// serialized on any lock.
//
// A reader keeps its place in memory and is for one goroutine.
type Reader interface {
	// Next returns the next rows that are committed as of target, at most limit. A
	// target that is older than those which led to the reader's position adds
	// nothing: what those reached may still come.
	// A page that came short because of the payloads' size is followed by
	// another. After an error Next can be called again and repeats nothing that
	// a page carried, except after ErrServerChanged: then a new reader must begin at
	// the stored position.
	//
	// Rows that are cancelled are passed over: those of which that was committed when
	// Next was called, or by Page.Asked where the reader sets it, and perhaps others.
	Next(ctx context.Context, target Target, limit int) (Page, error)
}

// Looker is a Reader that can look how far the log reaches, and read what has come since, in
// one statement.
type Looker interface {
	Reader
	// Look is Log.Probe. Where the reader has read all up to its last target, and little has
	// come since, the new target brings that along, and Next with it asks the database nothing.
	Look(ctx context.Context) (Target, error)
}

// Page is a run of rows and the positions between them.
type Page struct {
	Envelopes []notification.Envelope
	// Start is the position before the first row.
	Start Position
	// End is the position behind the last row, and behind everything that the
	// reader passed over without finding a row for this lane.
	End Position
	// Asked is when the database was asked, or before: whether a row was cancelled later is not
	// known. A reader sets it where that is before Next was called, as on a standby; zero stands for that
	// moment, and the engine sets it.
	Asked time.Time
	// CaughtUp says that there is nothing more as of the target.
	CaughtUp bool
	// Rebased says, once, why the reader had to start over at the oldest row: the
	// log it knew is gone, and with it the meaning of the offsets that were settled
	// in it. "" is the usual case.
	Rebased string

	// After is the position behind Envelopes[i].
	After func(i int) Position
}
