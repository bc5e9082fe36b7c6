package pages

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

const (
	// slowCheckpoint is when a checkpoint is marked as slow: a fifth of the default lease.
	slowCheckpoint = 3 * time.Second
)

// forwarderRow is a forwarder in the list.
type forwarderRow struct {
	store.Member
	// Name and PID are parts of Owner; PID is "" if Owner has another form.
	Name, PID string
	// Here says that the forwarder runs in this process.
	Here bool
	// OtherVersion and OtherSettings say that the forwarder differs from most others.
	OtherVersion, OtherSettings bool
	// Held has the lanes that the forwarder owns, and Count how many there are.
	Held  []heldLanes
	Count int
	// Cannot has the sinks to which the forwarder cannot deliver, although they have lanes.
	Cannot []string
	// Slow marks a checkpoint that took long.
	Slow bool
}

// workRow is a forwarder's work for one sink, or for all sinks that its heartbeat does not name.
type workRow struct {
	store.SinkRunning
	Owner, Name string
}

// Others reports whether the row is the sum of all sinks without a name in the heartbeat.
func (w workRow) Others() bool { return w.Sink == store.SinkOthers }

// heldLanes are the lanes of one sink that a forwarder owns.
type heldLanes struct {
	Sink    string
	numbers []int
	of      int
}

// Text lists the numbers, such as "0, 2–5 of 8".
func (h heldLanes) Text() string {
	if h.of == 1 {
		return "its only lane"
	}
	var texts []string
	for i := 0; i < len(h.numbers); {
		end := i
		for end+1 < len(h.numbers) && h.numbers[end+1] == h.numbers[end]+1 {
			end++
		}
		text := fmt.Sprint(h.numbers[i])
		if end > i {
			text += fmt.Sprintf("–%d", h.numbers[end])
		}
		texts, i = append(texts, text), end+1
	}
	return fmt.Sprintf("%s of %d", strings.Join(texts, ", "), h.of)
}

// freeLanes are the lanes of a sink that no forwarder owns.
type freeLanes struct {
	Sink    string
	Count   int
	Longest time.Duration
	Paused  bool
}

// Long reports whether a lane has been free for longer than a handover takes.
func (f freeLanes) Long() bool { return f.Longest >= store.Handover }

type forwardersPage struct {
	Forwarders []forwarderRow
	Free       []freeLanes
	// Work is the work of each forwarder for each sink, from its last heartbeat.
	Work []workRow
	// Versions and Settings count the different versions and settings.
	Versions, Settings int
}

func forwarders(ctx context.Context, r *request) (any, error) {
	m, err := r.Store.Membership(ctx)
	if err != nil {
		return nil, err
	}
	here := ""
	if r.Forwarder != nil {
		here = r.Forwarder.OwnerIn(r.Database)
	}
	return fleetOf(m, here), nil
}

// fleetOf returns the page of a membership. here is the owner name of this process's forwarder.
func fleetOf(m store.Membership, here string) forwardersPage {
	version, versions := usual(m, func(m store.Member) string { return m.Version })
	settings, digests := usual(m, func(m store.Member) string { return m.Settings })
	page := forwardersPage{Versions: versions, Settings: digests, Free: free(m)}
	var sinks []string
	for _, l := range m.Lanes {
		if l.Lane.Sink != store.SinkUnrouted && !slices.Contains(sinks, l.Lane.Sink) {
			sinks = append(sinks, l.Lane.Sink)
		}
	}
	for _, member := range m.Members {
		row := forwarderRow{Member: member, Name: member.Owner, Here: member.Owner == here, Slow: member.Checkpoint >= slowCheckpoint}
		if parts := strings.Split(member.Owner, "/"); len(parts) >= 3 {
			row.Name, row.PID = strings.Join(parts[:len(parts)-2], "/"), parts[len(parts)-2]
		}
		row.OtherVersion, row.OtherSettings = member.Version != version, member.Settings != settings
		for _, l := range m.Lanes {
			if l.Owner == member.Owner {
				row.hold(l.Lane)
			}
		}
		for _, sink := range sinks {
			if !slices.Contains(member.Sinks, sink) {
				row.Cannot = append(row.Cannot, sink)
			}
		}
		page.Forwarders = append(page.Forwarders, row)
		for _, s := range member.Running.Sinks {
			page.Work = append(page.Work, workRow{s, row.Owner, row.Name})
		}
	}
	return page
}

func (r *forwarderRow) hold(l store.Lane) {
	r.Count++
	if n := len(r.Held); n == 0 || r.Held[n-1].Sink != l.Sink {
		r.Held = append(r.Held, heldLanes{Sink: l.Sink, of: l.Of})
	}
	last := &r.Held[len(r.Held)-1]
	last.numbers = append(last.numbers, l.Number)
}

// usual returns the value that most forwarders have, and how many different values there are. If
// two values are equally frequent, it returns the value of the forwarder that started last: after
// a rollout the older forwarders are the exceptions.
func usual(m store.Membership, of func(store.Member) string) (most string, count int) {
	type group struct {
		members int
		last    time.Time
	}
	groups := make(map[string]group)
	for _, member := range m.Members {
		g := groups[of(member)]
		g.members++
		if member.Since.After(g.last) {
			g.last = member.Since
		}
		groups[of(member)] = g
	}
	if len(groups) == 0 {
		return "", 0
	}
	most = slices.MaxFunc(slices.Sorted(maps.Keys(groups)), func(a, b string) int {
		return cmp.Or(cmp.Compare(groups[a].members, groups[b].members), groups[a].last.Compare(groups[b].last))
	})
	return most, len(groups)
}

// free returns the lanes that no forwarder owns, by sink.
func free(m store.Membership) (all []freeLanes) {
	for _, l := range m.Lanes {
		if l.Owner != "" {
			continue
		}
		if n := len(all); n == 0 || all[n-1].Sink != l.Lane.Sink {
			all = append(all, freeLanes{Sink: l.Lane.Sink, Paused: l.Paused})
		}
		last := &all[len(all)-1]
		last.Count++
		last.Longest = max(last.Longest, l.Free)
	}
	return all
}
