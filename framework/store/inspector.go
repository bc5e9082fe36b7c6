package store

import (
	"context"
	"time"
)

// Inspector shows people the content of an outbox. It changes nothing.
type Inspector interface {
	// Status reports the state of the log, the cursors and the parked deliveries.
	Status(ctx context.Context, q StatusQuery) (Status, error)

	// Membership returns the running forwarders and the lanes of all sinks.
	Membership(ctx context.Context) (Membership, error)

	// Holders returns the sinks that keep rows in the log, and why: sinks with cursors, and
	// the given ones, which may not have cursors yet.
	Holders(ctx context.Context, sinks []string) ([]Holder, error)

	// CountParked counts the parked deliveries that match, by sink and state. changed is when
	// the last of them changed, by the database's clock, for ParkedFilter.Until. It fails with
	// ErrUnknownSink if the outbox has nothing of the filter's sink.
	CountParked(ctx context.Context, f ParkedFilter) (counts []ParkedCount, changed time.Time, err error)

	// FindParked returns at most limit matching deliveries, by sink and in log order, after a
	// given place; the zero value is before all. If their payloads add up to some megabytes it
	// returns fewer, but at least one if there are more.
	FindParked(ctx context.Context, f ParkedFilter, after ParkedPlace, limit int) ([]ParkedDelivery, error)

	// ParkedFigures counts the parked deliveries of each sink that has any, by an index, and
	// orders them by sink. It costs as much as these figures of a sample.
	ParkedFigures(ctx context.Context) ([]ParkedFigures, error)

	// BrowseParked returns parked deliveries for people, in short pages. A page costs about the
	// same however many are parked.
	BrowseParked(ctx context.Context, q ParkedQuery) (ParkedPage, error)

	// Browse returns rows of the log for people, newest first, in short pages. A page costs
	// about the same however long the log is.
	Browse(ctx context.Context, q LogQuery) (LogPage, error)

	// CountReplay counts what a replay would deliver. It fails with ErrUnknownSink for a sink
	// without cursors, and with ErrOtherLog if they belong to another log.
	CountReplay(ctx context.Context, q ReplayQuery) (ReplayCount, error)

	// CountReroute counts what a reroute would move, by type and state, ordered by these.
	// changed is as in CountParked.
	CountReroute(ctx context.Context, q RerouteQuery) (counts []RerouteCount, changed time.Time, err error)

	// Action returns an action by its id, or ErrUnknownAction. Actions returns at most limit of
	// the latest actions, newest first.
	Action(ctx context.Context, id string) (Action, error)
	Actions(ctx context.Context, limit int) ([]Action, error)

	// Types counts the last rows of the log, and parked deliveries, by type and version,
	// ordered by these. It counts at most limit of each; 0 means no limit, and reads both
	// tables completely.
	Types(ctx context.Context, limit int) ([]TypeCount, error)

	// Trace returns what the outbox has of a notification. If several rows have its id, it
	// returns the last ones, from the part of the log in which it first finds any.
	Trace(ctx context.Context, q TraceQuery) (Trace, error)

	// ReceiptsOf returns the archived receipts of rows of the log, ordered by offset, id and
	// sink. There may be thousands of refs, or none.
	ReceiptsOf(ctx context.Context, refs []Ref) ([]TracedReceipt, error)

	// Oldest returns the first row that is still in the log, or nil.
	Oldest(ctx context.Context) (*Row, error)

	// Related searches for the notifications of a correlation in a part of the log and in all
	// parked deliveries. It reads as many offsets as the query says: a million take about a
	// second.
	Related(ctx context.Context, q RelatedQuery) (Related, error)

	// KeepsReceipts reports whether checkpoints archive receipts.
	KeepsReceipts() bool

	// Traces counts what the outbox has of a sink. If it has nothing, it fails with
	// ErrUnknownSink, which names the known sinks.
	Traces(ctx context.Context, sink string) (Traces, error)
}
