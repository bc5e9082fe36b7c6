package store

import (
	"context"
	"time"
)

// Inspector shows people what is in an outbox. It changes nothing.
type Inspector interface {
	// Status reports the log, the cursors and what is parked.
	Status(ctx context.Context, q StatusQuery) (Status, error)

	// Membership lists the forwarders that live and the lanes of all sinks.
	Membership(ctx context.Context) (Membership, error)

	// Holders lists the sinks that keep rows in the log, and why: those that have
	// cursors, and the given ones, which may have none yet.
	Holders(ctx context.Context, sinks []string) ([]Holder, error)

	// CountParked counts the parked deliveries that match, by sink and state. changed is
	// when the last of them changed, by the database's clock, for ParkedFilter.Until.
	// ErrUnknownSink if the filter names a sink of which the outbox has nothing.
	CountParked(ctx context.Context, f ParkedFilter) (counts []ParkedCount, changed time.Time, err error)

	// FindParked returns at most limit of them, by sink and in log order, from
	// behind a place on; the zero value is before all. Where their payloads add up to
	// some megabytes it returns fewer, but never none while there are more.
	FindParked(ctx context.Context, f ParkedFilter, after ParkedPlace, limit int) ([]ParkedDelivery, error)

	// ParkedFigures counts what is parked for each sink that has anything parked, by name, along
	// an index. It costs what it does in a sample.
	ParkedFigures(ctx context.Context) ([]ParkedFigures, error)

	// BrowseParked lists parked deliveries for people, in short pages, of which each costs
	// about the same however much is parked.
	BrowseParked(ctx context.Context, q ParkedQuery) (ParkedPage, error)

	// Browse lists rows of the log for people, the newest first, in short pages, of which
	// each costs about the same however long the log is.
	Browse(ctx context.Context, q LogQuery) (LogPage, error)

	// CountReplay counts what a replay is about. A sink without cursors gives
	// ErrUnknownSink; ErrOtherLog if they are not of this log.
	CountReplay(ctx context.Context, q ReplayQuery) (ReplayCount, error)

	// CountReroute counts what a reroute is about, by type and state, in their order.
	// changed is as in CountParked.
	CountReroute(ctx context.Context, q RerouteQuery) (counts []RerouteCount, changed time.Time, err error)

	// Action returns what was done under an id, ErrUnknownAction if nothing was;
	// Actions lists the latest, newest first, at most limit.
	Action(ctx context.Context, id string) (Action, error)
	Actions(ctx context.Context, limit int) ([]Action, error)

	// Types counts the last rows of the log, and parked deliveries, by type and version,
	// in their order. It counts at most limit of each; 0 is no limit, and reads all of
	// both tables.
	Types(ctx context.Context, limit int) ([]TypeCount, error)

	// Trace gathers what the outbox has of a notification. Of several rows with one id it gives
	// the last ones of the part of the log in which it finds some.
	Trace(ctx context.Context, q TraceQuery) (Trace, error)

	// ReceiptsOf lists the archived receipts of rows of the log, in the order of offset, id
	// and sink. There may be thousands of refs, or none.
	ReceiptsOf(ctx context.Context, refs []Ref) ([]TracedReceipt, error)

	// Oldest is the first row that is still in the log; nil: there is none.
	Oldest(ctx context.Context) (*Row, error)

	// Related looks for the notifications of a correlation, in a part of the log and in all
	// that is parked. It reads as many offsets as the query says: a million take about a
	// second.
	Related(ctx context.Context, q RelatedQuery) (Related, error)

	// KeepsReceipts reports whether checkpoints archive receipts.
	KeepsReceipts() bool

	// Traces counts what the outbox has of a sink; ErrUnknownSink, naming those
	// that there are, if it has nothing.
	Traces(ctx context.Context, sink string) (Traces, error)
}
