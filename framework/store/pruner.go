package store

import (
	"context"
	"time"
)

// Pruner removes what is no longer needed.
//
// A row of the log may go when every sink that has a cursor, and every sink that
// the caller names, has settled it, and when it is old enough. Parked deliveries
// hold nothing back: they have their envelopes with them. Calls may be made in
// parallel, also by several processes; one of them then removes nothing.
type Pruner interface {
	// Prune removes rows of the log, in one short transaction. Where it would
	// have to wait, such as for an operator who alters the table, it
	// removes nothing and looks at nothing, which is no error.
	Prune(ctx context.Context, e Pruning) (Pruned, error)

	// PruneReceipts removes archived receipts of deliveries that were made age ago or
	// earlier, by the database's clock, at most limit of them. It returns how many it
	// removed.
	PruneReceipts(ctx context.Context, age time.Duration, limit int) (int, error)

	// PruneInbox removes ids that were noted age ago or earlier, by the database's
	// clock, at most limit of them. It returns how many it removed.
	PruneInbox(ctx context.Context, age time.Duration, limit int) (int, error)

	// PruneCancelled removes cancellations that were made age ago or earlier, by the
	// database's clock, and that nothing in the log or scheduled needs any more, at most
	// limit of them. It returns how many it removed.
	PruneCancelled(ctx context.Context, age time.Duration, limit int) (int, error)

	// PruneClaims removes claims of uniqueness keys that ended age ago or earlier, by the
	// database's clock, at most limit of them. It returns how many it removed.
	PruneClaims(ctx context.Context, age time.Duration, limit int) (int, error)

	// Holders lists the sinks that keep rows in the log, and why; see Inspector.
	Holders(ctx context.Context, sinks []string) ([]Holder, error)
}

// Partitioner is for a Pruner whose log may be cut into partitions by ranges of
// offsets. There, Prune removes only what lies in none of the ranges; all that is old
// where this role may not drop partitions.
type Partitioner interface {
	// Partitioned reports whether the log is cut. Where not, the other methods do
	// nothing.
	Partitioned() bool

	// ExtendPartitions makes partitions ahead of the log, and returns how many.
	// ErrNotOwner: only another role may, which holds for PrunePartitions too.
	ExtendPartitions(ctx context.Context) (int, error)

	// PrunePartitions drops the partitions of which Prune would remove each row,
	// and returns how many. One that is in use stays for the next time, or is
	// emptied only; publishers never wait for it longer than about 100 ms, and where
	// a transaction is in the way, once a call.
	PrunePartitions(ctx context.Context, e Pruning) (int, error)
}

// Pruning asks for the removal of old rows.
type Pruning struct {
	// Age is how long ago a row must have occurred, by the database's clock. What
	// counts is the row's own occurred_on, which the application has set: one that
	// lies in the future stays until its time has come, and holds up no other.
	Age time.Duration
	// After is where the look begins: behind this offset.
	After int64
	// Limit is how many rows are looked at. It bounds how long the transaction
	// runs, whatever may be removed.
	Limit int
	// Sinks are those that the caller delivers to. One of them that has no cursors
	// yet may begin at the oldest row, and so keeps everything.
	Sinks []string
}

// Pruned is what became of the rows that were looked at.
type Pruned struct {
	// Looked is how many rows there were, up to Pruning.Limit. Fewer means that the
	// end of the log was reached.
	Looked int
	// Removed is how many of them are gone.
	Removed int
	// Through is the offset of the last one; Pruning.After if there was none.
	Through int64
}
