package store

import (
	"context"

	"github.com/waybill-go/waybill/framework/notification"
)

// Tracer is a Store that can tell where one notification is.
type Tracer interface {
	// Trace gathers what the outbox has of a notification. It looks through the log
	// from its end, which takes a while where the row is an old one of many
	// millions. Of several rows with one id it gives the last ones.
	Trace(ctx context.Context, id string) (Trace, error)
}

// Trace is what the outbox has of one notification.
type Trace struct {
	// Rows are those of the log: none, if retention took them or there never were any.
	Rows []TracedRow
	// Parked are its parked deliveries, by sink.
	Parked []ParkedDelivery
	// Receipts are those that are archived, by sink.
	Receipts []TracedReceipt
	// Oldest is the first row of the log; nil: there is none.
	Oldest *Row
}

// TracedRow is a row of the log, and how each sink stands with it.
type TracedRow struct {
	Envelope notification.Envelope
	// Lanes are those that the row belongs to: one of each sink.
	Lanes []TracedLane
}

// TracedLane is how a sink's cursor stands with a row.
type TracedLane struct {
	Lane Lane
	// Owner has an unexpired lease on the lane; "" if nobody has.
	Owner  string
	Paused bool
	// Settled says that the row is settled: delivered, parked, or not for this sink.
	Settled bool
	// Before counts the rows of any type that come before it and are not settled
	// either, up to PendingLimit.
	Before int64
	// OtherLog says that the cursor is not of this log, which will be read anew.
	OtherLog bool
}

// TracedReceipt is the receipt of a delivery to a sink.
type TracedReceipt struct {
	Sink string
	Receipt
}
