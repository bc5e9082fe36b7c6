package admin

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// ForwarderStatus is a forwarder that lives: its lanes, and what it said with its last
// heartbeat.
type ForwarderStatus struct {
	Forwarder string `json:"forwarder"`
	// Since is when its first heartbeat was, and SeenAt its last one, by the database's clock.
	Since  time.Time `json:"since"`
	SeenAt time.Time `json:"seen_at"`
	// Version is that of its program, and Settings a digest of its configuration; "" where it
	// says nothing. Forwarders that work alike have the same.
	Version  string `json:"version,omitempty"`
	Settings string `json:"settings,omitempty"`
	// CheckpointSeconds is how long the slowest checkpoint of about its last minute took.
	CheckpointSeconds float64 `json:"checkpoint_seconds"`
	// Sinks are those that it can deliver to.
	Sinks []string `json:"sinks"`
	// Lanes are how many it works on, by sink.
	Lanes map[string]int `json:"lanes"`
	// Running is how it works for each sink, by name; see store.Running.
	Running []store.SinkRunning `json:"running"`
	// States are those of its sinks that do not go well, as it sees them.
	States map[string]store.SinkState `json:"states"`
}

// Forwarders lists those that live, by name.
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
		if of := lanes[l.Owner]; of != nil { // or its lease outlives its heartbeats
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
