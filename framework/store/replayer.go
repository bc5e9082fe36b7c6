package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Replayer is a Store that can deliver rows of the log again: to one sink, as
// parked deliveries that are due, so that they have the sink's retries, and the
// order of their keys. The cursors stay where they are.
//
// Only what the sink has settled is replayed: the rest comes by itself. What is
// parked for it stays as it is.
type Replayer interface {
	// CountReplay counts what a replay is about. A sink without cursors gives
	// ErrUnknownSink; ErrOtherLog if they are not of this log.
	CountReplay(ctx context.Context, q ReplayQuery) (ReplayCount, error)

	// Replay parks the next rows behind b.After, at most b.Limit, in log order, as
	// part of an action that has got through b.After: the first one of a key is
	// retrying and due, the others are blocked behind it, and all of them behind
	// what is parked of the key. A batch that was written already, or by somebody else
	// who goes on with the action, changes nothing and gives ErrActionMoved.
	Replay(ctx context.Context, b ReplayBatch) (ReplayResult, error)
}

// ReplayQuery selects rows of the log.
type ReplayQuery struct {
	Sink string
	// Types must all match.
	Types []notification.TypeFilter
	// Since and Until bound when it occurred: from Since on and before Until. The
	// zero value is no bound.
	Since, Until time.Time
	// After and UpTo bound the offsets: above After, and up to UpTo.
	After, UpTo int64
}

// ReplayCount is what a replay is about.
type ReplayCount struct {
	// Rows are to be delivered again.
	Rows int64 `json:"rows"`
	// Parked are parked for the sink, and stay as they are.
	Parked int64 `json:"parked"`
	// Unsettled are those that the sink has not settled yet: they come by themselves.
	Unsettled int64 `json:"unsettled"`
	// Oldest is the first row that retention has left in the log; nil: there is none.
	Oldest *Row `json:"oldest"`
}

// ReplayBatch is the next part of a replay.
type ReplayBatch struct {
	ReplayQuery
	// Action is the id of the action that it belongs to.
	Action string
	Limit  int
	// DueAt is when the deliveries are due.
	DueAt time.Time
}

// ReplayResult is what came of a batch.
type ReplayResult struct {
	Changed int
	// Through is the offset up to which the replay has got now.
	Through int64
}

// ReplaySpan is how many offsets one batch looks through at most: checkpoints of the
// sink wait for it.
const ReplaySpan = 20_000

// CheckMoved gives ErrActionMoved where an update of an action met no row.
func CheckMoved(result sql.Result) error {
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		err = ErrActionMoved
	}
	return err
}
