package store

import "time"

// Member is a forwarder that lives.
type Member struct {
	Owner string
	// Since is when its first heartbeat was, and SeenAt its last one, by the database's
	// clock.
	Since, SeenAt time.Time
	// Sinks are those that it can deliver to.
	Sinks []string
	// States are those of its sinks that do not go well, as it sees them.
	States map[string]SinkState
	Running
}

// Running is what a forwarder says of itself with its heartbeats.
type Running struct {
	// Version is that of its program, and Settings a digest of its configuration; "" where
	// it says nothing. Forwarders that work alike have the same.
	Version  string `json:"version,omitempty"`
	Settings string `json:"settings,omitempty"`
	// Checkpoint is how long the slowest checkpoint of about its last minute took.
	Checkpoint time.Duration `json:"checkpoint,omitempty"`
	// Sinks are how it works for each of its sinks, by name: RunningSinks at most, and those beyond under
	// SinkOthers.
	Sinks []SinkRunning `json:"sinks,omitempty"`
}

// Membership is the forwarders and their lanes, at one moment.
type Membership struct {
	// Members are the forwarders that live, by name.
	Members []Member
	// Lanes are those of all sinks, by sink and number.
	Lanes []LaneState
}

// LaneState is a lane and the forwarder that works on it.
type LaneState struct {
	Lane Lane
	// Wanted is into how many lanes the sink is to be cut; 0: as it is.
	Wanted int
	// Owner has an unexpired lease on it; "" if there is none.
	Owner string
	// Left is how long that lease still lasts.
	Left time.Duration
	// Free is for how long there has been none.
	Free time.Duration
	// Paused stops work on it until a person resumes the sink.
	Paused bool
	// Revision changes when a person has changed what is parked for the sink.
	Revision int64
}
