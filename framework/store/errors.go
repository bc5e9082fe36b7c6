package store

import "errors"

// Errors of what is written in the caller's transaction.
var (
	// ErrCollision: another transaction wrote the same, and this one is to be repeated.
	ErrCollision = errors.New("another transaction wrote the same")
	// ErrOtherDatabase: the transaction's database has no such tables.
	ErrOtherDatabase = errors.New("the transaction is of another database, or of one that is not migrated")
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
	// ErrPartitions: the log that is there is not partitioned, and is not to be changed.
	ErrPartitions = errors.New("the log is not partitioned")
	// ErrUnsafeLog: the log's table was changed so that readers would lose rows.
	ErrUnsafeLog = errors.New("the log would lose rows")
	// ErrStart: a new sink cannot begin there.
	ErrStart = errors.New("invalid start of a sink")
	// ErrPosition: a cursor's position cannot be read.
	ErrPosition = errors.New("unreadable cursor position")
)

// Errors while running.
var (
	// ErrLeaseHeld: another forwarder holds the lane.
	ErrLeaseHeld = errors.New("lane is leased by another forwarder")
	// ErrLanes: the sink is cut into another number of lanes.
	ErrLanes = errors.New("no such lane")
	// ErrNotLevel: the lanes of a sink do not stand at one place.
	ErrNotLevel = errors.New("the lanes are not at the same position")
	// ErrServerChanged: the database was restarted, or another server took over.
	ErrServerChanged = errors.New("another database server answers, or the same after a restart")
	// ErrHidden: row-level security hides rows of the outbox from this role. Nothing was
	// read or written: what is hidden would be passed over.
	ErrHidden = errors.New("row-level security hides rows of the outbox from this role")
	// ErrNotOwner: partitions are made and dropped by the owner of the log only.
	ErrNotOwner = errors.New("the log belongs to another role")
	// ErrSpoiled: what ran in a checkpoint's transaction returned no error, but ended the
	// transaction or left it so that it cannot be committed. Nothing was written, unless it
	// was committed there.
	ErrSpoiled = errors.New("the transaction of the checkpoint was ended, or cannot be committed any more")
	// ErrLeaseLost: the lane went to another forwarder; nothing was written.
	ErrLeaseLost = errors.New("lease was lost to another forwarder")
)

// Errors of what people ask for.
var (
	// ErrUnknownSink: the outbox has nothing of a sink of that name.
	ErrUnknownSink = errors.New("unknown sink")
	// ErrUnknownAction: no action of that id was begun.
	ErrUnknownAction = errors.New("unknown action")
	// ErrUnknownSchedule: the outbox has no schedule of that name.
	ErrUnknownSchedule = errors.New("unknown schedule")
	// ErrActionBegun: an action of that id was begun already.
	ErrActionBegun = errors.New("the action was begun already")
	// ErrActionEnded: the action has ended or was cancelled before, so there is nothing to
	// cancel.
	ErrActionEnded = errors.New("the action has ended")
	// ErrActionCancelled: a person has cancelled the action. Nothing of the batch was done.
	ErrActionCancelled = errors.New("the action was cancelled")
	// ErrActionMoved: another process goes on with the action, or the batch was written.
	ErrActionMoved = errors.New("the action has already progressed further")
	// ErrOtherLog: the sink's cursors are not of this log, which was restored or
	// truncated since.
	ErrOtherLog = errors.New("the cursors are of another log")
)

// AdvisedError is an error of the database with a hint for people: the way out,
// where the error's own text does not name it. Error leaves the hint out.
type AdvisedError struct {
	Err  error
	Hint string
}

func (e *AdvisedError) Error() string { return e.Err.Error() }
func (e *AdvisedError) Unwrap() error { return e.Err }

// Advice is the hint.
func (e *AdvisedError) Advice() string { return e.Hint }
