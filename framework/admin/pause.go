package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/store"
)

// PauseFilter is what the actions pause and resume record as their filter.
type PauseFilter struct {
	Sinks []string `json:"sinks"`
}

// Pause stops deliveries to sinks until Resume. Forwarders let deliveries in flight end and
// release the sinks' lanes at their next look, within a twentieth of their lease. Nothing is
// lost: notifications published meanwhile stay in the log, whatever its retention. Pause
// returns the sinks that were not already paused. An unknown sink fails with
// store.ErrUnknownSink, and nothing is paused.
func (a *Admin) Pause(ctx context.Context, sinks ...string) (changed []string, err error) {
	return a.pause(ctx, "pause", true, sinks)
}

// Resume ends Pause: forwarders lease the lanes again within a fifth of their lease, and continue
// from the cursors. It returns the sinks that were paused.
func (a *Admin) Resume(ctx context.Context, sinks ...string) (changed []string, err error) {
	return a.pause(ctx, "resume", false, sinks)
}

func (a *Admin) pause(ctx context.Context, name string, paused bool, sinks []string) (changed []string, err error) {
	known, err := a.Sinks(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(known))
	for i, s := range known {
		names[i] = s.Sink
	}
	for _, sink := range sinks {
		if !slices.Contains(names, sink) {
			return nil, fmt.Errorf("%s: %w %q: the outbox knows %s", name, store.ErrUnknownSink, sink, cmp.Or(strings.Join(names, ", "), "none yet"))
		}
	}
	action, err := a.begin(ctx, name, PauseFilter{sinks}, 0)
	if err != nil {
		return nil, err
	}
	for _, sink := range sinks {
		did, err := a.store.Pause(ctx, action.ID, sink, paused)
		if err != nil {
			return changed, err
		}
		if did {
			changed = append(changed, sink)
		}
	}
	return changed, a.end(ctx, &action)
}

// Pauses returns, by sink, the actions that paused the sinks that are paused in a membership. One is missing if more
// pauses and resumes than store.PauseLimit came after it.
func (a *Admin) Pauses(ctx context.Context, m store.Membership) (map[string]store.Action, error) {
	if !slices.ContainsFunc(m.Lanes, func(l store.LaneState) bool { return l.Paused }) {
		return nil, nil
	}
	actions, err := a.store.Actions(ctx, store.PauseLimit, "pause", "resume")
	return store.Pauses(actions), err
}

// SinkStatus is a sink with cursors.
type SinkStatus struct {
	Sink   string `json:"sink"`
	Paused bool   `json:"paused"`
}

// Sinks returns the sinks with cursors, in alphabetical order.
func (a *Admin) Sinks(ctx context.Context) ([]SinkStatus, error) {
	membership, err := a.store.Membership(ctx)
	if err != nil {
		return nil, err
	}
	var sinks []SinkStatus
	for _, l := range membership.Lanes {
		if n := len(sinks); n == 0 || sinks[n-1].Sink != l.Lane.Sink {
			sinks = append(sinks, SinkStatus{Sink: l.Lane.Sink, Paused: l.Paused})
		}
	}
	return sinks, nil
}
