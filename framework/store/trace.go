package store

import "github.com/waybill-go/waybill/framework/notification"

// TraceQuery says which notification to trace, and where to search for its row: at an offset, or
// else around the time in the id, if it is a UUIDv7, and then through the log from its end,
// which takes a while for an old row among many millions.
type TraceQuery struct {
	ID string
	// Offset is the offset of its row; 0: unknown.
	Offset int64
	// Before is the offset before which to search; 0: from the end of the log.
	Before int64
	// Offsets is how many offsets to examine; 0: all.
	Offsets int64
}

// Trace is what the outbox has of one notification.
type Trace struct {
	// Rows are its rows in the log: none if retention has removed them or they never existed.
	Rows []TracedRow
	// Parked are its parked deliveries, by sink.
	Parked []ParkedDelivery
	// Receipts are its archived receipts, by sink.
	Receipts []TracedReceipt
	// Cancelled are its cancellations, by offset.
	Cancelled []Cancellation
	// Oldest is the first row of the log, or nil.
	Oldest *Row
	// Next is the TraceQuery.Before to continue the search with; 0: the row was found, or there
	// is none.
	Next int64
}

// Envelope returns the notification from the last of its rows, or from a parked delivery; nil if
// there is neither.
func (t *Trace) Envelope() *notification.Envelope {
	switch n := len(t.Rows); {
	case n > 0:
		return &t.Rows[n-1].Envelope
	case len(t.Parked) > 0:
		return &t.Parked[0].Envelope
	}
	return nil
}

// TracedRow is a row of the log, and its state at each sink.
type TracedRow struct {
	Envelope notification.Envelope
	// Lanes are the lanes of the row, one for each sink.
	Lanes []TracedLane
}

// TracedLane is the state of a row at a sink's cursor.
type TracedLane struct {
	Lane Lane
	// Owner is the forwarder with an unexpired lease on the lane; "" if there is none.
	Owner  string
	Paused bool
	// Settled reports that the row is settled: delivered, parked, or not for this sink.
	Settled bool
	// Before is the number of unsettled rows of any type before it, up to PendingLimit. More
	// reports that there may be more: a trace examines only some thousands of rows.
	Before int64
	More   bool
	// OtherLog reports that the cursor belongs to another log; this log will be read from its
	// beginning.
	OtherLog bool
}

// TracedReceipt is the receipt of a delivery to a sink.
type TracedReceipt struct {
	Sink string
	Receipt
}

// Traces counts what the outbox has of a sink.
type Traces struct {
	Sink     string `json:"sink"`
	Cursors  int64  `json:"cursors"`
	Parked   int64  `json:"parked"`
	Receipts int64  `json:"receipts"`
}

// None reports whether all counts are 0.
func (t Traces) None() bool { return t.Cursors == 0 && t.Parked == 0 && t.Receipts == 0 }
