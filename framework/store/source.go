package store

import (
	"context"
	"encoding/json"
	"time"
)

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
