package store

import (
	"context"
	"database/sql"
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

// Source is a log outside of the database, such as topics of a Kafka cluster. The database keeps
// the cursors and the parked deliveries; its own log stays empty.
//
// A lane is a partition of the source. It has one slot, with the lane's number, and its cursor's
// position names the partition. Partitions may be added, but not removed.
type Source interface {
	Log

	// Name returns a name for messages, such as "topics orders, bills of Kafka".
	Name() string

	// Begin returns the beginnings of the lanes that a sink lacks, in a stable order. known are
	// the positions of those that it has, by number. If it has none, all begin at start.
	// Otherwise they begin before their oldest row, since they were empty when the sink began.
	// It fails with ErrLanes if the source has more than Slots partitions, and with ErrPosition
	// if a position belongs to another source.
	Begin(ctx context.Context, known []json.RawMessage, start Start) ([]LaneBeginning, error)

	// Through returns the offset up to which a cursor has settled all rows of its lane.
	Through(lane LanePosition) (int64, error)

	// Waiting returns what each lane has left up to a target, of any type, including rows that
	// were settled out of order. A lane for which that is unknown has the zero value.
	Waiting(ctx context.Context, lanes []LanePosition, target Target) ([]Waiting, error)

	// Extent describes the log as a whole.
	Extent(ctx context.Context) (Extent, error)

	// Settled is called after each checkpoint that moved a cursor. It never blocks.
	Settled(lane Lane, position Position)

	// At returns where a lane goes back to: the position before its first row written at since or
	// later or, if from names a row of the lane, before that row. rows is an upper bound of the
	// rows between it and the lane's position; it is 0 if the lane does not go back, because it
	// would go forward or from names a row of another lane.
	At(ctx context.Context, lane LanePosition, since time.Time, from string) (back json.RawMessage, rows int64, err error)
}

// Sourced is a store whose log may be a source.
type Sourced interface {
	// Source returns the source, or nil if the log is the database's own.
	Source() Source
}

// SourceOf returns the source of a store, or nil if its log is the database's own.
func SourceOf(s any) Source {
	if sourced, can := s.(Sourced); can {
		return sourced.Source()
	}
	return nil
}

// LaneBeginning is where a lane of a source begins.
type LaneBeginning struct {
	Position json.RawMessage
	// Passed is an upper bound of the rows before it that are still in the log.
	Passed int64
}

// LanePosition is a lane and the position of its cursor.
type LanePosition struct {
	Lane     Lane
	Position json.RawMessage
}

// Waiting is what a lane of a source has left.
type Waiting struct {
	// Rows is the number of offsets.
	Rows int64
	// Oldest is when the first of the rows occurred; zero if unknown.
	Oldest time.Time
}

// Extent is the size of a source.
type Extent struct {
	Bytes int64 // 0: unknown
	// Oldest is when the oldest remaining row occurred; zero if there is none. Whole reports that
	// nothing was removed yet.
	Oldest time.Time
	Whole  bool
	// Keeps is how long the source keeps rows, the shortest time of its parts; 0 means forever.
	Keeps time.Duration
}

// News is the kind of an announcement that a Listener hears.
type News int

// The kinds of news.
const (
	// NewsUnknown: listening has begun; announcements before that may have been missed.
	NewsUnknown News = iota
	// NewsRows: the log may have grown.
	NewsRows
	// NewsLanes: a forwarder has released a lane.
	NewsLanes
)

// Listener is a Store whose database can announce news, so that a forwarder need not wait for
// its next look. An announcement may be lost, so the forwarder goes on looking.
type Listener interface {
	// Listen calls hear, one call at a time: with NewsUnknown when it has begun to listen, then
	// for each announcement. It returns nil when ctx is done. If it cannot hear any more, it
	// returns why, and the caller listens again after a pause. A store that is not configured
	// to listen returns nil at once. hear must not block.
	Listen(ctx context.Context, hear func(News)) error
}

// Announcer is a log that can announce its growth to listeners in other processes. Its methods
// are safe for concurrent use.
type Announcer interface {
	// Announce wakes the listeners of this log. It is called after the commit that made the log
	// grow, never inside a transaction. One call may announce many commits.
	Announce(ctx context.Context) error
}

// QuietTarget is a Target that says whether a log can be left alone: once all rows of a closed
// target are settled, there is nothing to read until a later target has moved.
type QuietTarget interface {
	Target
	// Closed reports that every row up to Last that will ever be visible is visible: no
	// transaction that took an offset up to Last is still open. It is false if unknown.
	Closed() bool
	// Moved reports that there may be other rows than as of an earlier, closed target of the same
	// store: the log has grown or was replaced, or the server was restored or replaced.
	Moved(since Target) bool
}

// Neighbour is a Log that can be probed together with others of its database, in one statement.
type Neighbour interface {
	Log
	// Handle returns the handle of its database. Logs with the same handle are neighbours.
	Handle() *sql.DB
	// ProbeTogether probes neighbours of this log, possibly including itself, and returns their
	// targets in the same order.
	ProbeTogether(ctx context.Context, logs []Neighbour) ([]Target, error)
}
