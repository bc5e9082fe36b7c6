package store

import (
	"fmt"
	"time"
)

// Member is a forwarder that says it lives.
type Member struct {
	Owner string
	// Sinks are those that it can deliver to.
	Sinks []string
	// States are those of its sinks that do not go well, as it sees them.
	States map[string]SinkState
}

// Membership is who works on what, at one moment.
type Membership struct {
	// Members are the forwarders that live, by name.
	Members []Member
	// Lanes are those of all sinks, by sink and number.
	Lanes []LaneState
}

// LaneState is who works on a lane.
type LaneState struct {
	Lane Lane
	// Wanted is into how many lanes the sink is to be cut; 0: as it is.
	Wanted int
	// Owner has an unexpired lease on it; "" if nobody has.
	Owner string
	// Free is for how long nobody has had one.
	Free time.Duration
	// Paused says that nobody is to work on it until a person resumes the sink.
	Paused bool
	// Revision changes when a person has changed what is parked for the sink.
	Revision int64
}

// LaneRow is a row of the cursors' table, as far as it tells of its lane.
type LaneRow struct {
	Sink               string
	Number, Of, Wanted int
	Owner              string // with an unexpired lease
	Free               time.Duration
	Paused             bool
	Revision           int64
}

// NewLaneState is what a row tells.
func NewLaneState(r LaneRow) LaneState {
	s := LaneState{Lane: NewLane(r.Sink, r.Number, r.Of), Wanted: r.Wanted, Owner: r.Owner, Paused: r.Paused, Revision: r.Revision}
	if r.Owner == "" {
		s.Free = max(0, r.Free)
	}
	return s
}

// Cursor is a row of the cursors' table, as Recut needs it.
type Cursor struct {
	Lane     int
	Wanted   int
	Owner    string
	Epoch    int64
	Position []byte // empty: before the oldest row
	Settled  string
	Paused   bool
}

// CheckRecut says whether these, all the cursors of a sink, can be cut anew by who
// holds the leases: ErrLeaseLost, ErrNotLevel, or ErrLanes where no other number
// is wanted. Their positions are the dialect's to compare.
func CheckRecut(cursors []Cursor, leases []Lease) error {
	if len(cursors) == 0 || cursors[0].Wanted == 0 {
		return fmt.Errorf("%w wanted anew", ErrLanes)
	}
	if len(cursors) != len(leases) {
		return ErrLeaseLost
	}
	held := make(map[int]Lease, len(leases))
	for _, l := range leases {
		held[l.Lane.Number] = l
	}
	for _, c := range cursors {
		l, ok := held[c.Lane]
		switch {
		case !ok || l.Owner != c.Owner || l.Epoch != c.Epoch:
			return ErrLeaseLost
		case c.Settled != "":
			return fmt.Errorf("%w: lane %d has settled %s ahead", ErrNotLevel, c.Lane, c.Settled)
		}
	}
	return nil
}

// LastEpoch is the highest epoch of the cursors.
func LastEpoch(cursors []Cursor) (last int64) {
	for _, c := range cursors {
		last = max(last, c.Epoch)
	}
	return last
}
