package store

import (
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

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

// IsUnowned reports whether a lane has been without a forwarder for longer than patience, although one
// should work on it.
func (l *LaneState) IsUnowned(patience time.Duration) bool {
	return l.Owner == "" && !l.Paused && l.Free >= patience
}

// Unowned counts the lanes of a sink that have been without a forwarder for longer than Handover.
func (m Membership) Unowned(sink string) (lanes int) {
	for i := range m.Lanes {
		if l := &m.Lanes[i]; l.Lane.Sink == sink && l.IsUnowned(Handover) {
			lanes++
		}
	}
	return lanes
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
