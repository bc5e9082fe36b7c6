package store

import "github.com/waybill-go/waybill/framework/notification"

// TraceQuery is about which notification a trace is, and where its row is looked for: at an offset, or else
// around the time that the id holds, if it is a UUIDv7, and then through the log from its end, which takes a
// while where the row is an old one of many millions.
type TraceQuery struct {
	ID string
	// Offset is that of its row; 0: not known.
	Offset int64
	// Before is the offset before which to look; 0: from the end of the log on.
	Before int64
	// Offsets is how many offsets are looked through; 0: as many as there are.
	Offsets int64
}

// Trace is what the outbox has of one notification.
type Trace struct {
	// Rows are those of the log: none, if retention took them or there never were any.
	Rows []TracedRow
	// Parked are its parked deliveries, by sink.
	Parked []ParkedDelivery
	// Receipts are those that are archived, by sink.
	Receipts []TracedReceipt
	// Cancelled are the cancellations, by offset.
	Cancelled []Cancellation
	// Oldest is the first row of the log; nil: there is none.
	Oldest *Row
	// Next is the TraceQuery.Before with which to look on for its row; 0: that was found, or is nowhere.
	Next int64
}

// Envelope is the notification as the last of its rows has it, or what is parked; nil if there
// is neither.
func (t *Trace) Envelope() *notification.Envelope {
	switch n := len(t.Rows); {
	case n > 0:
		return &t.Rows[n-1].Envelope
	case len(t.Parked) > 0:
		return &t.Parked[0].Envelope
	}
	return nil
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
	// Owner has an unexpired lease on the lane; "" if there is none.
	Owner  string
	Paused bool
	// Settled says that the row is settled: delivered, parked, or not for this sink.
	Settled bool
	// Before counts the rows of any type that come before it and are not settled
	// either, up to PendingLimit. More says that there may be more: a trace looks through some
	// thousands of rows for them.
	Before int64
	More   bool
	// OtherLog reports that the cursor is not of this log, which will be read from its
	// beginning.
	OtherLog bool
}

// TracedReceipt is the receipt of a delivery to a sink.
type TracedReceipt struct {
	Sink string
	Receipt
}

// Traces is how much the outbox has of a sink.
type Traces struct {
	Sink     string `json:"sink"`
	Cursors  int64  `json:"cursors"`
	Parked   int64  `json:"parked"`
	Receipts int64  `json:"receipts"`
}

// None reports whether there is nothing at all.
func (t Traces) None() bool { return t.Cursors == 0 && t.Parked == 0 && t.Receipts == 0 }
