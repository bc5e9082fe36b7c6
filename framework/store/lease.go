package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Leases decide which forwarder works on which lane.
type Leases interface {
	// Cut creates the cursors of a sink, for the given number of lanes, in one transaction, at
	// start; a start that is not valid fails with ErrStart. Existing cursors stay as they are. If
	// they have another number of lanes, that number is stored as the wanted one, for Recut: the
	// last call decides.
	//
	// With the default start, a sink begins at StartOldest until a lane of any sink was leased,
	// and at StartNow from then on, even if that sink is forgotten. So a forwarder creates the
	// cursors of all its sinks before it leases a lane, and they all start alike. SinkPruner
	// reads nothing: it has no start and does not count.
	Cut(ctx context.Context, sink string, lanes int, start Start) (Created, error)

	// Recut replaces the lanes of a sink by the wanted number of new lanes, at the position of
	// the old ones. leases are the leases of all its lanes, and end with the call. It fails with
	// ErrNotLevel if the cursors are at different positions, or have settled offsets after them.
	Recut(ctx context.Context, sink string, leases []Lease) error

	// Heartbeat records that a forwarder is running until ttl from now, by the database's
	// clock; another call renews that. Leave ends it at once.
	Heartbeat(ctx context.Context, member Member, ttl time.Duration) error
	Leave(ctx context.Context, owner string) error

	// Membership returns the running forwarders and the lanes of all sinks.
	Membership(ctx context.Context) (Membership, error)

	// Acquire leases a lane for the owner until ttl from now, by the database's clock. If another
	// owner has an unexpired lease, it fails with ErrLeaseHeld. A lease of the same owner is
	// replaced, since the response to an earlier call may have been lost. It fails with ErrLanes
	// if the lane does not exist, because the sink has another number of lanes or none. Each
	// lease of a lane has a higher epoch than the one before. [Deliveries.Checkpoint] renews it.
	Acquire(ctx context.Context, lane Lane, owner string, ttl time.Duration) (Lease, error)

	// Route lets each of the given sinks take other types, as soon as none of their lanes is leased
	// and none of SinkUnrouted; until then it stores them as wanted, and returns false. The last call
	// decides. Without sinks it goes on with what is wanted. true means that nothing is wanted any
	// more. SinkUnrouted stays wanted until it is known what every other sink takes.
	//
	// SinkUnrouted takes the types that no sink takes; none beside a sink that takes all but the
	// reserved ones. The change loses and repeats nothing: rows that no sink reads any more, and that
	// SinkUnrouted has passed, are parked under it; rows that it has parked and that a sink now reads
	// are not parked any more; and its scheduled deliveries of a type that a sink takes go to that
	// sink. If the log is a source, only the types change.
	Route(ctx context.Context, sinks map[string]notification.TypeFilter) (done bool, err error)

	// Release ends a lease at once. Releasing a lost lease is not an error.
	Release(ctx context.Context, lease Lease) error
}

// Lease is the right to work on one lane until it expires.
type Lease struct {
	Lane  Lane
	Owner string
	Epoch int64
	// Server identifies the life of the database server that gave the lease; "" if the database
	// has none. What this process knows, but no checkpoint has stored, is not valid in another
	// life: a crash or a failover undoes transactions, and assigns their ids again.
	Server string
	// Position is the cursor's position; nil for a new one.
	Position json.RawMessage
	// Settled are offsets after the position that are already settled, ascending.
	Settled []OffsetRange
	// Types are the types that the sink takes; nil before Route. For SinkUnrouted they are those
	// that no sink takes.
	Types *notification.TypeFilter
	// Checkpoint is the number of the lane's last written checkpoint, under any lease; 0 before
	// the cursor's first one.
	Checkpoint int64
	// Revision is the revision of the sink's parked deliveries when the lease was given; see
	// LaneState.
	Revision int64
}

// Lane is a range of slots of one sink: the unit that one forwarder leases.
type Lane struct {
	Sink string
	// Database is the name of the lane's database in a forwarder of several databases; "" with a
	// single one. Stores leave it empty.
	Database string
	// Number counts from 0; Of is the sink's number of lanes.
	Number, Of int
	// Slots are the lane's slots.
	Slots SlotRange
}

// Slots is the number of slots. It is part of the stored data and can never change.
const Slots = 1024

// SlotRange is a closed range of slots.
type SlotRange struct{ First, Last int }

// All reports whether the range includes all slots.
func (r SlotRange) All() bool { return r.First == 0 && r.Last == Slots-1 }

// Lanes cuts the slots into count ranges of nearly equal size for a sink. count must be between
// 1 and Slots.
func Lanes(sink string, count int) []Lane {
	lanes := make([]Lane, count)
	for i := range lanes {
		lanes[i] = NewLane(sink, i, count)
	}
	return lanes
}

// NewLane returns one of the lanes of Lanes: number from 0 to of-1.
func NewLane(sink string, number, of int) Lane {
	return Lane{
		Sink:   sink,
		Number: number,
		Of:     of,
		Slots:  SlotRange{First: number * Slots / of, Last: (number+1)*Slots/of - 1},
	}
}

// Start says where in the log a sink without cursors begins. The zero value is the default
// rule: StartOldest if nothing was forwarded from the log yet, otherwise StartNow. A sink with
// cursors continues at them, whatever its Start.
//
// As text it is "oldest", "now", or an RFC 3339 time.
type Start string

const (
	// StartOldest begins at the oldest row that is still in the log.
	StartOldest Start = "oldest"
	// StartNow begins after all rows committed when the cursors are created. Rows of
	// transactions that are open at that time are delivered.
	StartNow Start = "now"
)

// StartAt begins at the first row, in log order, that occurred at t or later: all rows before
// it are skipped and none after it, whenever they occurred. Rows that are not committed when
// the cursors are created are delivered in any case.
func StartAt(t time.Time) Start { return Start(t.UTC().Format(time.RFC3339Nano)) }

// Time returns the time of a StartAt; false for any other Start.
func (s Start) Time() (time.Time, bool) {
	t, err := time.Parse(time.RFC3339, string(s))
	return t.UTC(), err == nil
}

// Validate returns ErrStart if the text is not a valid Start.
func (s Start) Validate() error {
	if _, isTime := s.Time(); isTime || s == "" || s == StartOldest || s == StartNow {
		return nil
	}
	return fmt.Errorf("%w: %q: use %s, %s, or a time such as 2026-03-01T00:00:00Z", ErrStart, string(s), StartOldest, StartNow)
}

// Created is the result of Cut.
type Created struct {
	// Lanes is how many cursors were created; 0 if the sink already had all of them.
	Lanes int
	// Grown reports that the sink had cursors, and that the source has more partitions now.
	Grown bool
	// Start is where the new cursors begin; the default rule is replaced by its result.
	Start Start
	// Passed is how many committed rows, of any type, were skipped, up to PendingLimit.
	Passed int
}

// Member is a running forwarder.
type Member struct {
	Owner string
	// Since is its first heartbeat, and SeenAt its last one, by the database's clock.
	Since, SeenAt time.Time
	// Sinks are the sinks that it can deliver to.
	Sinks []string
	// States are the states of its sinks that have a problem, as it sees them.
	States map[string]SinkState
	Running
}

// Running is what a forwarder reports about itself in its heartbeats.
type Running struct {
	// Version is the version of its program, and Settings a digest of its configuration; ""
	// if it did not report them. Forwarders with the same configuration have the same digest.
	Version  string `json:"version,omitempty"`
	Settings string `json:"settings,omitempty"`
	// Checkpoint is the duration of its slowest checkpoint in about the last minute.
	Checkpoint time.Duration `json:"checkpoint,omitempty"`
	// Sinks is its work for each sink, by name: at most RunningSinks of them, and the sum of the
	// others under SinkOthers.
	Sinks []SinkRunning `json:"sinks,omitempty"`
}

// Membership is the running forwarders and all lanes, at one moment.
type Membership struct {
	// Members are the running forwarders, by name.
	Members []Member
	// Lanes are the lanes of all sinks, by sink and number.
	Lanes []LaneState
}

// Handover is how long a lane may be without a forwarder while forwarders hand it over, or after its
// sink was resumed.
const Handover = 30 * time.Second

// IsUnowned reports whether a lane has been without a forwarder for longer than Handover, although one
// should work on it.
func (l *LaneState) IsUnowned() bool {
	return l.Owner == "" && !l.Paused && l.Free >= Handover
}

// LaneState is a lane and the forwarder that works on it.
type LaneState struct {
	Lane Lane
	// Wanted is the wanted number of lanes; 0: the present one.
	Wanted int
	// Types are the types that the sink takes; nil before Route. Wanted types are those that it
	// shall take; nil: the present ones.
	Types, WantedTypes *notification.TypeFilter
	// Owner is the forwarder with an unexpired lease on it; "" if there is none.
	Owner string
	// Left is how long that lease still lasts.
	Left time.Duration
	// Free is how long the lane has been without a lease, since its sink was resumed.
	Free time.Duration
	// Paused means that no forwarder works on it until a person resumes the sink.
	Paused bool
	// Revision changes when a person has changed the sink's parked deliveries.
	Revision int64
}

// SinkRunning is a forwarder's work for one sink, as of its last heartbeat.
type SinkRunning struct {
	// Sink is the sink's name, or SinkOthers.
	Sink string `json:"sink"`
	// Delivered counts deliveries, Failed attempts that failed temporarily, and Dead dead
	// deliveries, all since the forwarder was made.
	Delivered int64 `json:"delivered,omitempty"`
	Failed    int64 `json:"failed,omitempty"`
	Dead      int64 `json:"dead,omitempty"`
	// PerSecond is the number of deliveries per second in about the last minute, or since the
	// last heartbeat if that is longer ago.
	PerSecond float64 `json:"per_second,omitempty"`
	// InFlight is the number of deliveries in flight, Threshold their maximum, and Pending the
	// number of unsettled deliveries in memory.
	InFlight  int `json:"in_flight,omitempty"`
	Threshold int `json:"threshold,omitempty"`
	Pending   int `json:"pending,omitempty"`
	// BreakerOpen reports that its deliveries wait; Cause is the beginning of the last error.
	BreakerOpen bool   `json:"breaker_open,omitempty"`
	Cause       string `json:"cause,omitempty"`
	// Hour has what was done in the span of HourSpan in which the heartbeat was made and in those before
	// it, the latest first, for about an hour. Spans at the end in which nothing was done are left out.
	Hour []Done `json:"hour,omitempty"`
}

// Done counts deliveries, and attempts that failed or ended as dead.
type Done [2]int64

// HourSpan is the span of a Done, from a multiple of it since 1970 on, and HourSpans how many a heartbeat has.
const (
	HourSpan  = 5 * time.Minute
	HourSpans = 12
)

// SinkOthers is the reserved name for the sum of the sinks that a heartbeat does not name.
const SinkOthers = "_others"

// RunningSinks is how many sinks a heartbeat names.
const RunningSinks = 32

// Plus returns the sum of both, without Hour. Its cause is the first one.
func (s SinkRunning) Plus(more SinkRunning) SinkRunning {
	s.Delivered += more.Delivered
	s.Failed += more.Failed
	s.Dead += more.Dead
	s.PerSecond += more.PerSecond
	s.InFlight += more.InFlight
	s.Threshold += more.Threshold
	s.Pending += more.Pending
	s.BreakerOpen = s.BreakerOpen || more.BreakerOpen
	s.Cause, s.Hour = cmp.Or(s.Cause, more.Cause), nil
	return s
}

// BoundSinks keeps the RunningSinks most important sinks, by name: first those with an open
// breaker, then the busiest, then those with the most pending. It adds up the others under
// SinkOthers, at the end.
func BoundSinks(sinks []SinkRunning) []SinkRunning {
	sinks = slices.Clone(sinks)
	byName := func(a, b SinkRunning) int { return cmp.Compare(a.Sink, b.Sink) }
	if len(sinks) <= RunningSinks {
		slices.SortFunc(sinks, byName)
		return sinks
	}
	slices.SortFunc(sinks, func(a, b SinkRunning) int {
		if a.BreakerOpen != b.BreakerOpen {
			if a.BreakerOpen {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), cmp.Compare(b.Pending, a.Pending), byName(a, b))
	})
	others := SinkRunning{Sink: SinkOthers}
	for _, s := range sinks[RunningSinks:] {
		others = others.Plus(s)
	}
	sinks = sinks[:RunningSinks]
	slices.SortFunc(sinks, byName)
	return append(sinks, others)
}

// Sinks returns the sums over all running forwarders, by sink. What one forwarder reports as
// SinkOthers may belong to a sink that another one names: so each sum is a lower bound unless
// SinkOthers is missing, while the sum of all is exact.
func (m Membership) Sinks() []SinkRunning {
	sums := make(map[string]SinkRunning)
	for _, member := range m.Members {
		for _, s := range member.Running.Sinks {
			sum := sums[s.Sink].Plus(s)
			sum.Sink = s.Sink
			sums[s.Sink] = sum
		}
	}
	return slices.SortedFunc(maps.Values(sums), func(a, b SinkRunning) int { return cmp.Compare(a.Sink, b.Sink) })
}
