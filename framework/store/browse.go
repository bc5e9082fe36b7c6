package store

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Browser finds single notifications and deliveries, for the lists, traces and exports of the
// dashboard and the command line.
type Browser interface {
	// FindParked returns at most limit matching deliveries, by sink and in log order, after a
	// given place; the zero value is before all. If their payloads add up to some megabytes it
	// returns fewer, but at least one if there are more.
	FindParked(ctx context.Context, f ParkedFilter, after ParkedPlace, limit int) ([]ParkedDelivery, error)

	// BrowseParked returns parked deliveries for people, in short pages. A page costs about the
	// same however many are parked.
	BrowseParked(ctx context.Context, q ParkedQuery) (ParkedPage, error)

	// Browse returns rows of the log for people, newest first, in short pages. A page costs
	// about the same however long the log is.
	Browse(ctx context.Context, q LogQuery) (LogPage, error)

	// Trace returns what the outbox has of a notification. If several rows have its id, it
	// returns the last ones, from the part of the log in which it first finds any.
	Trace(ctx context.Context, q TraceQuery) (Trace, error)

	// TraceRows traces rows of the log, such as those of a page of Browse, and returns a trace for each, in
	// their order. It reads no payloads, and sets neither Oldest nor Before in their lanes. It costs a
	// statement for each sink, or for each 64 lanes of it, so ask for a thousand rows at most.
	TraceRows(ctx context.Context, rows []notification.Envelope) ([]Trace, error)

	// ReceiptsOf returns the archived receipts of rows of the log, ordered by offset, id and
	// sink. There may be thousands of refs, or none.
	ReceiptsOf(ctx context.Context, refs []Ref) ([]TracedReceipt, error)

	// Collection returns the open collection of a group, or with a number a closed one. If there is
	// none, it has no members.
	Collection(ctx context.Context, sink string, of CollectionRef) (Collection, error)

	// Related searches for the notifications of a correlation in a part of the log and in all
	// parked deliveries. It reads as many offsets as the query says: a million take about a
	// second.
	Related(ctx context.Context, q RelatedQuery) (Related, error)
}

// ParkedFilter selects parked deliveries. Each field that is set narrows the selection; the
// zero value selects all.
type ParkedFilter struct {
	Sink string
	// ID is the notification's id.
	ID string
	// Types selects by type; the zero value means all types.
	Types notification.TypeFilter
	Key   string
	// Group is the group of collected deliveries.
	Group  string
	States []State
	// Metadata selects by metadata: each name must have its value.
	Metadata map[string]string
	// Heads selects dead deliveries whose key has nothing parked before them. If dead
	// deliveries hold back their key, these are the ones that do.
	Heads bool
	// Firsts leaves out members of collections that wait: those of open ones, and of closed ones all but
	// the first, which has the attempts and the time of all. Dead members are selected.
	Firsts bool
	// OlderThan and NewerThan bound how long ago a delivery was first parked, by the
	// database's clock.
	OlderThan, NewerThan time.Duration
	// Error is a part of the last error's text; case does not matter.
	Error string
	// Places selects single deliveries; if empty, all.
	Places []ParkedPlace
	// Until excludes deliveries that changed later, by the database's clock; zero: no bound.
	Until time.Time
}

// ParkedDelivery is a parked delivery as people see it.
type ParkedDelivery struct {
	Sink string
	Parked
	UpdatedAt time.Time
}

// ParkedPlace is where a list of parked deliveries continues.
type ParkedPlace struct {
	Sink string
	Ref
}

// Place returns the place of the delivery, after which a list continues.
func (d *ParkedDelivery) Place() ParkedPlace {
	return ParkedPlace{Sink: d.Sink, Ref: RefOf(&d.Envelope)}
}

// Collection is a collection as people see it.
type Collection struct {
	// Members is how many it has, up to ParkedLimit.
	Members int
	// DueAt is when it is due; of a closed one, when its next attempt is.
	DueAt time.Time
	// Behind is the number of the closed collection of its group after which an open one is closed; ""
	// if there is none.
	Behind string
}

// LogQuery asks for rows of the log, newest first. Each of the first five fields that is set
// narrows the selection. No index supports them, so a query examines a part of the log.
type LogQuery struct {
	// ID is the notification's id. If it contains a time, as a UUIDv7 does, only rows written
	// around that time are examined.
	ID string
	// Types selects by type; the zero value means all types.
	Types notification.TypeFilter
	Key   string
	// Since and Until select rows that occurred at Since or later, and before Until. Until may
	// miss rows written more than a minute after they occurred, as by an import.
	Since, Until time.Time
	// Before is the offset before which to look; 0: from the end of the log.
	Before int64
	// Offsets is how many offsets to examine, and Limit how many rows to return at most; each
	// at least 1.
	Offsets int64
	Limit   int
}

// LogPage is the result of a LogQuery.
type LogPage struct {
	// Rows are the rows found, newest first, without payloads, which are not read. A row that
	// is not committed yet is missing, even if its offset is lower than those of others.
	Rows []notification.Envelope
	// Last is the last row examined, the oldest one; nil if there was none.
	Last *Row
	// Next is the Before to continue with; 0: there is nothing more.
	Next int64
}

// ParkedQuery asks for parked deliveries, by sink and in log order. Few filters have an index,
// so a query examines a part of the table.
type ParkedQuery struct {
	Filter ParkedFilter
	// After is the place after which to look; the zero value is before all.
	After ParkedPlace
	// Look is roughly how many parked deliveries to examine, and Limit how many to return at
	// most; each at least 1. With an ID, which has an index, Look is ignored.
	Look, Limit int
}

// ParkedPage is the result of a ParkedQuery.
type ParkedPage struct {
	// Deliveries come without payloads, which are not read.
	Deliveries []ParkedDelivery
	// Next is the After to continue with; the zero value: there is nothing more.
	Next ParkedPlace
}

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
	// Before is the number of unsettled rows of any type before it. Estimated reports that it is
	// an estimate, from the first of these rows: a trace examines only some thousands.
	Before    int64
	Estimated bool
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

// RelatedQuery asks for the notifications of one correlation. No index has the correlation id,
// so a part of the log is examined: from an offset, from a time, or the last rows.
type RelatedQuery struct {
	// ID is the correlation id. The notification with this id is included.
	ID string
	// From is the first offset to examine; 0: Since decides.
	From int64
	// Since is when the first of them was published; zero: unknown, so the end of the log is
	// examined.
	Since time.Time
	// Offsets is how many offsets to examine, and Limit how many notifications to return at
	// most, fewer if their payloads add up to some megabytes; each at least 1.
	Offsets int64
	Limit   int
}

// Related is the result of a RelatedQuery, with all parked deliveries of the correlation.
type Related struct {
	// Traces are in log order, one for each id. Oldest is not set, nor is Before in their lanes.
	Traces []Trace
	// First and Last are the first and last row examined; nil if there were none.
	First, Last *Row
	// Omitted is how many parked deliveries were left out because of the limits.
	Omitted int
	// Next is the offset from which to continue; 0: the end of the log was reached.
	Next int64
	// Oldest is the first row of the log, or nil.
	Oldest *Row
}
