package sinks

import (
	"context"
	"errors"

	"github.com/waybill-go/waybill/framework/notification"
)

// Transactor is a sink whose destination has transactions, and can keep a note in them of
// what it took. With it each delivery is made once, as far as readers of what is committed
// see: the engine delivers in rounds, commits each round in one transaction with a note of
// it, and reads the newest note back before it delivers again.
//
// Such a sink takes neither middleware nor hooks, and its deliveries must have no effect
// before their transaction is committed.
type Transactor interface {
	Batcher

	// Transacts reports whether it is to do so, which its configuration says. It is asked
	// when a forwarder is made, and nothing below is called where it is not.
	Transacts() bool

	// OpenLedger begins the work on a lane. When it returns, whatever was begun for the lane
	// before, by any process, is committed or aborted, and none of it can be committed any
	// more; newest is the note that was committed last, nil where there is none. It returns
	// soon after ctx ends. Its errors have a class like those of deliveries; the engine
	// tries again.
	//
	// Of one lane one ledger is open at most, but for those of processes that do not know
	// that they have lost the lane.
	OpenLedger(ctx context.Context, lane LedgerLane) (l Ledger, newest []byte, err error)
}

// LedgerLane is a part of what is delivered to a sink, on which one forwarder works at a time.
type LedgerLane struct {
	// Number counts from 0. It is below Of, which is how many lanes there may be.
	Number, Of int
}

// Ledger takes the deliveries of one lane. DeliverBatch may be called in parallel, and not
// while Commit or Close is.
type Ledger interface {
	// DeliverBatch is that of a [Batcher], within the open transaction. What it returns no
	// error for is delivered once the transaction is committed. An error that does not cost
	// the transaction is as that of any delivery; else Err says so from then on. A delivery
	// that failed only because others did has an error that wraps [ErrAborted].
	DeliverBatch(ctx context.Context, batch []*notification.Delivery) []Result

	// Err says why the open transaction cannot be committed any more; nil: it can.
	Err() error

	// Commit commits what was delivered since the last one, with a note, and begins the next
	// transaction. After an error it is not known whether it is committed, and the
	// ledger is of no use but to be closed.
	Commit(ctx context.Context, note []byte) error

	// Close aborts what is not committed and ends the ledger. It returns soon after ctx ends;
	// what it could not abort then ends with the next ledger of the lane.
	Close(ctx context.Context) error
}

// ErrAborted is the error of a delivery that was aborted with the transaction it was in, through
// no fault of its own.
var ErrAborted = errors.New("aborted with its transaction")
