package store

import "errors"

// Errors of writing in the caller's transaction.
var (
	// ErrCollision: another transaction wrote the same row; retry this one.
	ErrCollision = errors.New("another transaction wrote the same row")
	// ErrOtherDatabase: the transaction's database has no such tables.
	ErrOtherDatabase = errors.New("the transaction belongs to another database, or to one that is not migrated")
)

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
	// ErrPartitions: the existing log is not partitioned and must not be changed.
	ErrPartitions = errors.New("the log is not partitioned")
	// ErrUnsafeLog: the log's table was changed so that readers would lose rows.
	ErrUnsafeLog = errors.New("the log would lose rows")
	// ErrStart: the start of a new sink is not valid.
	ErrStart = errors.New("invalid start of a sink")
	// ErrPosition: a cursor's position cannot be read.
	ErrPosition = errors.New("unreadable cursor position")
)

// Errors while running.
var (
	// ErrLeaseHeld: another forwarder holds the lane.
	ErrLeaseHeld = errors.New("lane is leased by another forwarder")
	// ErrLanes: the sink has another number of lanes.
	ErrLanes = errors.New("no such lane")
	// ErrNotLevel: the lanes of a sink are not at the same position.
	ErrNotLevel = errors.New("the lanes are not at the same position")
	// ErrServerChanged: the database was restarted, or another server took over.
	ErrServerChanged = errors.New("the database server was restarted or replaced by another one")
	// ErrReplaced: the database's file was removed or replaced. Only opening it again helps.
	ErrReplaced = errors.New("the database file was replaced")
	// ErrMixed: the write-ahead log of the replaced file would be applied to the new one, which
	// damages it. Nothing may open that before a person has removed the old log.
	ErrMixed = errors.New("the write-ahead log of the replaced file is still there")
	// ErrHidden: row-level security hides rows of the outbox from this role. Nothing was read
	// or written, since hidden rows would be skipped.
	ErrHidden = errors.New("row-level security hides rows of the outbox from this role")
	// ErrNotOwner: only the owner of the log can create and drop partitions.
	ErrNotOwner = errors.New("the log belongs to another role")
	// ErrSpoiled: the code that ran in a checkpoint's transaction returned no error, but ended
	// the transaction or left it unable to commit. Nothing was written, unless that code
	// committed it.
	ErrSpoiled = errors.New("the transaction of the checkpoint was ended, or can no longer be committed")
	// ErrNoPresence: no session can show the server here that this process is alive. The leases of a
	// process that dies run out then.
	ErrNoPresence = errors.New("no session can show that this process is alive")
	// ErrLeaseLost: the lane went to another forwarder; nothing was written.
	ErrLeaseLost = errors.New("lease was lost to another forwarder")
)

// Errors of requests by people.
var (
	// ErrUnknownSink: the outbox has nothing of a sink with this name.
	ErrUnknownSink = errors.New("unknown sink")
	// ErrUnknownAction: no action with this id was begun.
	ErrUnknownAction = errors.New("unknown action")
	// ErrUnknownSchedule: the outbox has no schedule with this name.
	ErrUnknownSchedule = errors.New("unknown schedule")
	// ErrTooManyEndpoints: the tenant has as many endpoints as it may have.
	ErrTooManyEndpoints = errors.New("too many endpoints")
	// ErrActionBegun: an action with this id was already begun.
	ErrActionBegun = errors.New("the action was already begun")
	// ErrActionEnded: the action has ended or was cancelled before.
	ErrActionEnded = errors.New("the action has ended")
	// ErrActionCancelled: a person has cancelled the action. The batch changed nothing.
	ErrActionCancelled = errors.New("the action was cancelled")
	// ErrActionMoved: another process continues the action, or the batch was already written.
	ErrActionMoved = errors.New("the action has already progressed further")
	// ErrOtherLog: the sink's cursors belong to another log, since this one was restored or
	// truncated.
	ErrOtherLog = errors.New("the cursors belong to another log")
)

// AdvisedError is an error of the database with a hint on how to fix it, for errors whose own
// text does not say that. Error does not include the hint.
type AdvisedError struct {
	Err  error
	Hint string
}

func (e *AdvisedError) Error() string { return e.Err.Error() }
func (e *AdvisedError) Unwrap() error { return e.Err }

// Advice returns the hint.
func (e *AdvisedError) Advice() string { return e.Hint }
