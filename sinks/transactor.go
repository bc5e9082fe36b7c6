package sinks

import (
	"context"
	"errors"

	"github.com/waybill-go/waybill/framework/notification"
)

// Transactor is a sink whose destination has transactions that can store a note with the
// deliveries. Readers of committed data then see each delivery exactly once: the engine delivers
// in rounds, commits each round in one transaction with a note about it, and reads the newest
// note back before it delivers again.
//
// Such a sink has neither middleware nor hooks, and its deliveries must have no effect before
// their transaction is committed.
type Transactor interface {
	Batcher

	// Transacts reports whether the sink's configuration asks for transactions. It is called
	// when a forwarder is made. If it returns false, the methods below are not called.
	Transacts() bool

	// OpenLedger begins the work on a lane. When it returns, every earlier transaction of the
	// lane, of any process, is committed or aborted, and none can be committed later. newest
	// is the note of the last commit, nil if there is none. OpenLedger returns soon after ctx
	// ends. Its errors have classes like those of deliveries, and the engine tries again.
	//
	// The engine opens at most one ledger for a lane at a time, except that a process which
	// has lost the lane without noticing may still have one.
	OpenLedger(ctx context.Context, lane LedgerLane) (l Ledger, newest []byte, err error)
}

// LedgerLane is the lane of a ledger. One forwarder works on a lane at a time.
type LedgerLane struct {
	// Number counts from 0. Of is the largest possible number of lanes.
	Number, Of int
}

// Ledger makes the deliveries of one lane. DeliverBatch may be called concurrently, but not
// during Commit or Close.
type Ledger interface {
	// DeliverBatch delivers like [Batcher.DeliverBatch], in the open transaction. Deliveries
	// without an error are made when the transaction is committed. If an error prevents the
	// commit, Err returns it from then on. The error of a delivery that failed only because
	// others did wraps [ErrAborted].
	DeliverBatch(ctx context.Context, batch []*notification.Delivery) []Result

	// Err returns why the open transaction can no longer be committed; nil if it can.
	Err() error

	// Commit commits the deliveries since the last commit with a note, and begins the next
	// transaction. After an error it is unknown whether the transaction was committed, and the
	// ledger can only be closed.
	Commit(ctx context.Context, note []byte) error

	// Close aborts the open transaction and ends the ledger. It returns soon after ctx ends.
	// A transaction that it could not abort in time ends when the lane's next ledger opens.
	Close(ctx context.Context) error
}

// ErrAborted is the error of a delivery that was aborted only because another one in its
// transaction failed.
var ErrAborted = errors.New("aborted with its transaction")

// ErrExpired is part of the error of a ledger whose transactions the destination has forgotten, such
// as after a week without one. Nothing is wrong: the lane's next ledger makes the deliveries again.
var ErrExpired = errors.New("the destination has forgotten its transactions")
