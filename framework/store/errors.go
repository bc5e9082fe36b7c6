package store

import "errors"

// Errors at start.
var (
	// ErrNotMigrated: the tables are missing or older than this program.
	ErrNotMigrated = errors.New("the outbox is not migrated")
	// ErrNewerSchema: a newer program has migrated the database.
	ErrNewerSchema = errors.New("the outbox was migrated by a newer version")
	// ErrPrefix: the prefix cannot be the beginning of a table name.
	ErrPrefix = errors.New("invalid table prefix")
	// ErrUnsupported: the database server lacks what the store needs.
	ErrUnsupported = errors.New("unsupported database")
	// ErrLanes: the sink's cursors were cut into another number of lanes.
	ErrLanes = errors.New("number of lanes differs from the cursors'")
	// ErrPartitions: the log that is there is not partitioned, and is not to be changed.
	ErrPartitions = errors.New("the log is not partitioned")
	// ErrPosition: a cursor's position cannot be read.
	ErrPosition = errors.New("unreadable cursor position")
)

// Errors while running.
var (
	// ErrLeaseHeld: another forwarder holds the lane.
	ErrLeaseHeld = errors.New("lane is leased by another forwarder")
	// ErrLeaseLost: the lane went to another forwarder; nothing was written.
	ErrLeaseLost = errors.New("lease was lost to another forwarder")
)

// Errors of what people ask for.
var (
	// ErrUnknownSink: the outbox has nothing of a sink of that name.
	ErrUnknownSink = errors.New("unknown sink")
)
