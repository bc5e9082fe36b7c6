package store

import (
	"context"
	"database/sql"
)

// QuietTarget is a Target that says whether a log may be left alone: once all rows of a closed
// target are settled, there is nothing to read before a later one has moved.
type QuietTarget interface {
	Target
	// Closed reports that all rows up to Last that will ever be visible are visible: no transaction
	// that took an offset up to there is still open. False where that is not known.
	Closed() bool
	// Moved reports that there may be other rows than as of an earlier, closed target of the same
	// store: the log has grown, was replaced, or another life of the server answers.
	Moved(since Target) bool
}

// Neighbour is a Log of which several in one database are probed by one statement.
type Neighbour interface {
	Log
	// Handle is the handle of its database. Logs with the same one are neighbours.
	Handle() *sql.DB
	// ProbeTogether probes neighbours of this log, which may be among them, and returns their targets in
	// their order.
	ProbeTogether(ctx context.Context, logs []Neighbour) ([]Target, error)
}
