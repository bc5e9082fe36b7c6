package admin

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// ForwarderStatus is a running forwarder: its lanes, and what it reported in its last heartbeat.
type ForwarderStatus struct {
	Forwarder string `json:"forwarder"`
	// Since is its first heartbeat, and SeenAt its last one, by the database's clock.
	Since  time.Time `json:"since"`
	SeenAt time.Time `json:"seen_at"`
	// Version is the version of its program, and Settings a digest of its configuration; ""
	// if it did not report them. Forwarders with the same configuration have the same digest.
	Version  string `json:"version,omitempty"`
	Settings string `json:"settings,omitempty"`
	// CheckpointSeconds is the duration of its slowest checkpoint in about the last minute.
	CheckpointSeconds float64 `json:"checkpoint_seconds"`
	// Sinks are the sinks that it can deliver to.
	Sinks []string `json:"sinks"`
	// Lanes is the number of lanes that it works on, by sink.
	Lanes map[string]int `json:"lanes"`
	// Running is its work for each sink, by name; see store.Running.
	Running []store.SinkRunning `json:"running"`
	// States are the states of its sinks that have a problem, as it sees them.
	States map[string]store.SinkState `json:"states"`
}

// Forwarders returns the running forwarders, by name.
func (a *Admin) Forwarders(ctx context.Context) ([]ForwarderStatus, error) {
	membership, err := a.store.Membership(ctx)
	return forwardersOf(membership), err
}

func forwardersOf(m store.Membership) []ForwarderStatus {
	lanes := make(map[string]map[string]int, len(m.Members)) // by forwarder and sink
	for _, member := range m.Members {
		lanes[member.Owner] = make(map[string]int)
	}
	for _, l := range m.Lanes {
		if of := lanes[l.Owner]; of != nil { // nil if its lease outlives its heartbeats
			of[l.Lane.Sink]++
		}
	}
	all := make([]ForwarderStatus, len(m.Members))
	for i, member := range m.Members {
		all[i] = ForwarderStatus{
			Forwarder: member.Owner, Since: member.Since.UTC(), SeenAt: member.SeenAt.UTC(),
			Version: member.Version, Settings: member.Settings, CheckpointSeconds: member.Checkpoint.Seconds(),
			Sinks: append([]string{}, member.Sinks...), Lanes: lanes[member.Owner],
			Running: append([]store.SinkRunning{}, member.Running.Sinks...), States: member.States,
		}
		if all[i].States == nil {
			all[i].States = make(map[string]store.SinkState)
		}
	}
	return all
}
