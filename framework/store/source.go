package store

import (
	"context"
	"encoding/json"
	"time"
)

// Source is a log outside of the database, such as the topics of a Kafka cluster. The database
// keeps the cursors on it, and what is parked; its own log stays empty.
//
// A lane is a partition of the source. It has one slot, whose number is the lane's, and its
// cursor's position says which partition that is. Partitions may be added, and never go.
type Source interface {
	Log

	// Name says in messages what it is, such as "topics orders and bills of Kafka cluster 7fQ".
	Name() string

	// Begin returns the beginnings of the lanes that a sink lacks, in an order that stays: known
	// are the positions of those that it has, by number. Where it has none, all begin at start;
	// later ones begin before their oldest row, since they were empty when the sink began. A
	// source of more than Slots partitions gives ErrLanes, and a position of another
	// source ErrPosition.
	Begin(ctx context.Context, known []json.RawMessage, start Start) ([]LaneBeginning, error)

	// Through is the offset up to which all rows of a lane are settled where its cursor stands.
	Through(lane LanePosition) (int64, error)

	// Waiting says what each lane has before it up to a target, of any type. What is settled
	// behind the position is among it. A lane of which that cannot be found out has the zero value.
	Waiting(ctx context.Context, lanes []LanePosition, target Target) ([]Waiting, error)

	// Extent describes the log as a whole.
	Extent(ctx context.Context) (Extent, error)

	// Settled is called behind each checkpoint that moved a cursor. It never blocks.
	Settled(lane Lane, position Position)

	// At returns the position before the first row of a lane that was written at since or later, or, if
	// from names one, before that; and how many rows are from there to where the lane stands, at most. It never
	// lies ahead of that: then there are none, as in the lanes that from is not in.
	At(ctx context.Context, lane LanePosition, since time.Time, from string) (back json.RawMessage, rows int64, err error)
}

// Sourced is for a store whose log may be a source.
type Sourced interface {
	// Source is nil where the log is the database's.
	Source() Source
}

// SourceOf is the source of a store; nil where its log is the database's.
func SourceOf(s any) Source {
	if sourced, can := s.(Sourced); can {
		return sourced.Source()
	}
	return nil
}

// LaneBeginning is where a lane of a source begins.
type LaneBeginning struct {
	Position json.RawMessage
	// Passed is how many rows are before it that are still in the log, at most.
	Passed int64
}

// LanePosition is a lane and where its cursor stands.
type LanePosition struct {
	Lane     Lane
	Position json.RawMessage
}

// Waiting is what a lane of a source has before it.
type Waiting struct {
	// Rows is how many offsets that is.
	Rows int64
	// Oldest is when the first of the rows occurred; zero if that was not looked for.
	Oldest time.Time
}

// Extent is how large a source is.
type Extent struct {
	Bytes int64 // 0: not known
	// Oldest is when the oldest row occurred that is still there; zero if there is none. Whole says that
	// nothing was removed yet.
	Oldest time.Time
	Whole  bool
	// Keeps is for how long the source keeps rows, the least of its parts; 0: for ever.
	Keeps time.Duration
}
