package store

import (
	"context"
	"time"
)

// Pruner removes what is no longer needed.
//
// A row of the log may be removed when it is old enough and every sink that has a cursor, and
// every sink that the caller names, has settled it. Parked deliveries hold nothing back: they
// have their envelopes. Calls may be concurrent, also from several processes; then one of them
// removes nothing.
type Pruner interface {
	// Prune removes rows of the log, in one short transaction. If it would have to wait, for
	// example for an operator who alters the table, it removes and examines nothing, which is
	// not an error.
	Prune(ctx context.Context, e Pruning) (Pruned, error)

	// PruneLeftovers removes what is at least that old, by the database's clock, at most limit rows of
	// one kind. It returns how many it removed.
	PruneLeftovers(ctx context.Context, kind Leftover, age time.Duration, limit int) (int, error)

	// Holders returns the sinks that keep rows in the log, and why; see Inspector.
	Holders(ctx context.Context, sinks []string) ([]Holder, error)
}

// Leftover is what is kept beside the log for a while.
type Leftover string

// The kinds of leftovers.
const (
	// LeftoverReceipts are archived receipts. Their age begins with the delivery.
	LeftoverReceipts Leftover = "receipts"
	// LeftoverIDs are ids of the inbox. Their age begins when they were noted.
	LeftoverIDs Leftover = "ids of the inbox"
	// LeftoverCancellations are cancellations that nothing in the log or scheduled needs any more.
	// Their age begins when they were made.
	LeftoverCancellations Leftover = "cancellations"
	// LeftoverClaims are uniqueness keys. Their age begins when they became free.
	LeftoverClaims Leftover = "uniqueness keys"
	// LeftoverAttempts are attempts at customers' endpoints. Their age begins at their Until.
	LeftoverAttempts Leftover = "attempts"
)

// Partitioner is a Pruner whose log may be partitioned by ranges of offsets. In a partitioned
// log, Prune removes only rows outside of the ranges, or all old rows if this role may not drop
// partitions.
type Partitioner interface {
	// Partitioned reports whether the log is partitioned. If not, the other methods do nothing.
	Partitioned() bool

	// ExtendPartitions creates partitions ahead of the log, and returns how many. It fails with
	// ErrNotOwner if this role may not do that; so does PrunePartitions.
	ExtendPartitions(ctx context.Context) (int, error)

	// PrunePartitions drops the partitions whose rows Prune would all remove, and returns how
	// many. A partition in use stays until the next call, or is only emptied. Publishers never
	// wait for it for more than about 100 ms and, while a transaction is in the way, once for
	// each call.
	PrunePartitions(ctx context.Context, e Pruning) (int, error)
}

// Pruning asks for the removal of old rows.
type Pruning struct {
	// Age is how long ago a row must have occurred, by the database's clock. The row's
	// occurred_on counts, which the application sets. A row whose occurred_on is in the future
	// stays until then, and does not hold back others.
	Age time.Duration
	// After is the offset after which to begin.
	After int64
	// Limit is how many rows to examine. It bounds the duration of the transaction.
	Limit int
	// Sinks are the sinks that the caller delivers to. A sink without cursors may begin at the
	// oldest row, and so keeps everything.
	Sinks []string
}

// Pruned is the result of a Prune.
type Pruned struct {
	// Looked is how many rows were examined, at most Pruning.Limit. Fewer means that the end of
	// the log was reached.
	Looked int
	// Removed is how many of them were removed.
	Removed int
	// Through is the offset of the last one examined; Pruning.After if there was none.
	Through int64
}
