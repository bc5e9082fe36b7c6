package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Inspector shows people the content of an outbox. It changes nothing.
type Inspector interface {
	Overviewer
	Browser
	Planner
}

// Overviewer reports the state of an outbox as a whole, for the status command, the dashboard and
// doctor.
type Overviewer interface {
	Sampler

	// Membership returns the running forwarders and the lanes of all sinks.
	Membership(ctx context.Context) (Membership, error)

	// Departed returns the last heartbeats of forwarders that have ended within about the last hour. A
	// forwarder that has left more than once, or is back, may be among them.
	Departed(ctx context.Context) ([]Member, error)

	// Holders returns the sinks that keep rows in the log, and why: sinks with cursors, and
	// the given ones, which may not have cursors yet.
	Holders(ctx context.Context, sinks []string) ([]Holder, error)

	// ParkedFigures counts the parked deliveries of each sink that has any, by an index, and
	// orders them by sink. It costs as much as these figures of a sample.
	ParkedFigures(ctx context.Context) ([]ParkedFigures, error)

	// Types counts the last rows of the log, and parked deliveries, by type and version,
	// ordered by these. It counts at most limit of each; 0 means no limit, and reads both
	// tables completely.
	Types(ctx context.Context, limit int) ([]TypeCount, error)

	// Oldest returns the first row that is still in the log, or nil.
	Oldest(ctx context.Context) (*Row, error)

	// KeepsReceipts reports whether checkpoints archive receipts.
	KeepsReceipts() bool
}

// PendingLimit is where a Sample stops counting the pending rows of a sink, in all its lanes
// together, oldest first. It estimates how many more there are.
const PendingLimit = 10_000

// CountTime is how long a Sample counts pending rows. Each sink has a share of the time, and at least one
// statement. An estimate of the rest then takes a few small ones. The whole log is searched for rows of rare types.
const CountTime = 500 * time.Millisecond

// Status is the state of an outbox, for people.
type Status struct {
	// Source is the name of the source that is the log; "" for the database's own log.
	Source string `json:"source,omitempty"`
	// LastOffset is the highest assigned offset; for a source, the number of records so far.
	LastOffset int64 `json:"last_offset"`
	// Oldest is the first row that is still in the log, or nil.
	Oldest  *Row           `json:"oldest"`
	Cursors []CursorStatus `json:"cursors"`
	// Parked counts parked deliveries up to ParkedLimit of each sink and state.
	Parked []ParkedCount `json:"parked"`
	// Holders are the sinks that keep rows in the log, since they have not settled them.
	Holders []Holder `json:"holders"`
}

// CursorStatus is the state of one lane of a sink.
type CursorStatus struct {
	Sink string `json:"sink"`
	Lane int    `json:"lane"`
	// Pending is the number of committed rows of the sink's types that are not settled yet.
	Pending int `json:"pending"`
	// Estimated reports that Pending is an estimate, because counting stopped at PendingLimit rows of
	// all lanes of the sink, or ran out of time. What was counted is included. The rest is taken to
	// be like what was counted and like some short parts of the rest: for types that are evenly
	// mixed the estimate is right within a factor of two, and other lanes or types may be missed.
	Estimated bool `json:"estimated,omitempty"`
	// AllTypes reports that Pending counts rows of any type, since SampleQuery does not name
	// the sink.
	AllTypes bool `json:"all_types,omitempty"`
	// Owner is the forwarder that has leased the lane; "" if none has.
	Owner      string    `json:"owner,omitempty"`
	Epoch      int64     `json:"epoch"`
	Paused     bool      `json:"paused,omitempty"`
	LeaseUntil time.Time `json:"lease_until,omitzero"`
	UpdatedAt  time.Time `json:"updated_at"`
}

// ParkedCount is how many deliveries of a sink are parked in one state.
type ParkedCount struct {
	Sink  string `json:"sink"`
	State State  `json:"state"`
	Count int64  `json:"count"`
	// HookError is the error of a failed hook of one of them; "" if none failed.
	HookError string `json:"hook_error,omitempty"`
	// Collections is the number of groups that collecting ones are in; 0 if it was not counted.
	Collections int64 `json:"collections,omitempty"`
}

// Row is a row of the log in a status.
type Row struct {
	Offset     int64     `json:"offset"`
	OccurredOn time.Time `json:"occurred_on"`
}

// Holder is a sink that keeps rows in the log.
type Holder struct {
	Sink string `json:"sink"`
	// Row is the oldest row that it keeps.
	Row
	// Reason says why the sink keeps all rows, whatever it has settled, such as a lane without
	// a cursor. "" is the usual case: the sink has not settled the row yet.
	Reason string `json:"reason,omitempty"`
}

// Sampler reads figures for monitoring, again and again.
type Sampler interface {
	// Sample reads the outbox once. Its counts use indexes and stop at PendingLimit or
	// ParkedLimit for each sink, and counting pending rows stops after about CountTime, so that a
	// sample costs about the same however much is parked or pending, and in however many lanes.
	// It changes nothing. It uses several statements without a transaction: figures may
	// differ by what happens meanwhile.
	Sample(ctx context.Context, q SampleQuery) (Sample, error)
}

// SampleQuery is what the caller knows about the outbox.
type SampleQuery struct {
	// Types are the types of each sink, by its name, for sinks of which the outbox does not know yet
	// what they take. Rows of other types are not pending for it. For such a sink that is left out,
	// rows of all types count. The sample includes these sinks even if they have no cursors.
	Types map[string]notification.TypeFilter
}

// Sample is one look at an outbox, for machines.
type Sample struct {
	Sinks []SinkSample // by name
	// Forwarders is the number of running forwarders.
	Forwarders int
	// LastOffset is the highest assigned offset; for a source, the number of records so far.
	LastOffset int64
	// LogBytes is the size of the log with its indexes; in SQLite the size of the file.
	LogBytes int64
	// Oldest is the first row that is still in the log, or nil. For a source its offset is 1 if
	// nothing was removed before it, and otherwise 0.
	Oldest *Row
	// Source is the name of the source that is the log; "" for the database's own log. Keeps is
	// how long the source keeps rows, delivered or not; 0 means forever.
	Source string
	Keeps  time.Duration
	// Held is the age of the oldest open transaction that has written to the log, as far as the
	// database shows it to this role; 0 if there is none, and always in SQLite.
	Held time.Duration
}

// SinkSample is one sink in a sample.
type SinkSample struct {
	Sink string
	// Pending is the number of committed rows of the sink's types that are not settled, in all
	// of its lanes.
	Pending int
	// Estimated reports that Pending is an estimate; see CursorStatus. If it is 0 then, nothing is known.
	Estimated bool
	// Lag is how long ago the oldest of the counted rows occurred, by the database's clock.
	Lag    time.Duration
	Paused bool
	// Owned and Free are the numbers of its lanes with and without an unexpired lease.
	Owned, Free int
	// Parked counts its parked deliveries.
	Parked ParkedFigures
	// Lanes are its lanes with cursors, by number.
	Lanes []LaneSample
	// Mark is a digest of how far the cursors with pending rows have settled. It stays the same while none of them moves.
	Mark uint64
}

// LaneSample is one lane of a sink.
type LaneSample struct {
	CursorStatus
	Lag time.Duration // as for the sink
}

// Status returns the sample as a Status. holders are the sinks that keep rows in the log.
func (s *Sample) Status(holders []Holder) Status {
	status := Status{Source: s.Source, LastOffset: s.LastOffset, Oldest: s.Oldest, Holders: holders}
	figures := make([]ParkedFigures, len(s.Sinks))
	for i := range s.Sinks {
		figures[i] = s.Sinks[i].Parked
		for _, lane := range s.Sinks[i].Lanes {
			status.Cursors = append(status.Cursors, lane.CursorStatus)
		}
	}
	status.Parked = ParkedCounts(figures)
	return status
}

// ParkedLimit is where counts of parked deliveries stop, so that they stay fast with millions of
// them.
const ParkedLimit = 10_000

// ParkedFigures counts the parked deliveries of one sink. Each count stops at ParkedLimit.
type ParkedFigures struct {
	Sink string
	// States has one entry for each state, even if it is empty.
	States []ParkedState
	// Overdue is how many have been due for more than a minute, and LongestDue how long the first
	// of them has been due.
	Overdue    int
	LongestDue time.Duration
	// DeadKeys is the number of keys with dead deliveries. Under on_dead: halt these keys wait
	// for a person.
	DeadKeys int
	// Hooks is how many wait for a failed hook, and HookError one of the errors.
	Hooks     int
	HookError string
	// Collections is the number of groups with a collection.
	Collections int
}

// ParkedState counts the parked deliveries in one state.
type ParkedState struct {
	State State
	Count int
	// Oldest is when the first of them was first parked; zero if there is none, and for
	// cancelled ones, which are included in the scheduled ones there.
	Oldest time.Time
	// HookError is the error of a failed hook of one of them; "" if none failed.
	HookError string
	// LastError is the beginning of the error of the one that was parked last, for retrying and dead ones.
	LastError string
	// LastType is the type of that one.
	LastType string
}

// Count returns how many deliveries are in a state.
func (f ParkedFigures) Count(state State) int { return f.In(state).Count }

// In returns the figures of a state.
func (f ParkedFigures) In(state State) ParkedState {
	if i := slices.IndexFunc(f.States, func(s ParkedState) bool { return s.State == state }); i >= 0 {
		return f.States[i]
	}
	return ParkedState{State: state}
}

// ParkedCounts returns the counts above 0, by sink and state.
func ParkedCounts(figures []ParkedFigures) (counts []ParkedCount) {
	for _, f := range figures {
		from := len(counts)
		for _, s := range f.States {
			if s.Count > 0 {
				counts = append(counts, ParkedCount{Sink: f.Sink, State: s.State, Count: int64(s.Count), HookError: s.HookError})
				if s.State == StateCollecting {
					counts[len(counts)-1].Collections = int64(f.Collections)
				}
			}
		}
		slices.SortFunc(counts[from:], func(a, b ParkedCount) int { return cmp.Compare(a.State, b.State) })
	}
	return counts
}

// TypeCount counts one version of a type.
type TypeCount struct {
	Type    string
	Version int
	// Rows is the number of rows in the log, and Parked that of parked deliveries of all sinks.
	Rows, Parked int64
	// OccurredOn is when the last of the rows occurred; zero if there is none.
	OccurredOn time.Time
}

// SinkState is what a forwarder knows about problems of a sink that hold up its deliveries.
// The zero value means that there are none.
type SinkState struct {
	// BreakerOpen reports that the sink is unavailable, or fails so often that its deliveries
	// wait. OpenSince is when the breaker opened, and Cause the last error.
	BreakerOpen bool      `json:"breaker_open,omitempty"`
	OpenSince   time.Time `json:"open_since,omitzero"`
	Cause       string    `json:"cause,omitempty"`
	// ThrottledUntil is until when the sink has asked the forwarder to wait. If the breaker is
	// not open, Cause is the error with which it asked.
	ThrottledUntil time.Time `json:"throttled_until,omitzero"`
	// Destinations are up to ten destinations that hold up their deliveries, and
	// AllDestinations is how many there are.
	Destinations    []DestinationState `json:"destinations,omitempty"`
	AllDestinations int                `json:"all_destinations,omitempty"`
}

// DestinationState is what a forwarder knows about problems of one destination of a sink.
type DestinationState struct {
	Destination string `json:"destination"`
	// OpenSince is when its breaker opened, zero if it is closed; Cause is the last error.
	OpenSince time.Time `json:"open_since,omitzero"`
	Cause     string    `json:"cause,omitempty"`
	// ThrottledUntil is until when it has asked the forwarder to wait.
	ThrottledUntil time.Time `json:"throttled_until,omitzero"`
}

// Holds reports whether the state holds up any deliveries.
func (s SinkState) Holds() bool {
	return s.BreakerOpen || !s.ThrottledUntil.IsZero() || len(s.Destinations) > 0
}
