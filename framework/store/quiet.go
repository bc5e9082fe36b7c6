package store

import (
	"context"
	"database/sql"
)

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
