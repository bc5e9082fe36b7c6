package dispatch

import (
	"context"
	"hash/fnv"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// If a sink collects, a delivery that has a group does not go at once.
//
// If the newest of a key is enough, and soon, it waits in memory before it gets a turn (gather), and a newer
// one takes its place. What is superseded is settled, so neither the window nor the parked table fills. Otherwise
// it is parked in the slot of its group. Once the collection is due, the settle half closes it and hands it over
// as a unit: one item, which is delivered, parked or dead as a whole.

// collect handles an item of the log in its group; "": it goes alone.
func (l *Lane) collect(it *item, group string) {
	switch {
	case group == "":
		l.stats.Ungrouped++
		l.letKeyGo(it.Key)
		l.enqueue(it)
	case l.dispatcher.isUrgent(it):
		l.enqueue(it)
	case l.dispatcher.collect.InMemory():
		l.gather.add(l, it)
	case it.Key != "" && l.keys.Holds(it.Key): // behind what was parked for itself, before there was a rule
		l.enqueue(it)
	default:
		l.parkMember(it, group, false)
	}
}

// collectParked handles an item of the parked table that is in no collection yet. It returns false if it is not
// collected, or in memory only: what was parked for its time, or by a replay, gets its turn.
func (l *Lane) collectParked(it *item, p *store.Parked) bool {
	c := l.dispatcher.caller
	if c.Groups == nil || l.dispatcher.collect.InMemory() || p.Collection != "" { // a member that was released
		return false
	}
	group := c.Group(context.Background(), it.Envelope)
	if group == "" || l.dispatcher.isUrgent(it) {
		return false
	}
	l.busy.add(it.ref(), p)
	l.parkMember(it, group, it.Key != "" && p.State != store.StateScheduled)
	return true
}

// parkMember parks an item as a member of its group's open collection. ask means that its key may have others
// in the parked table.
func (l *Lane) parkMember(it *item, group string, ask bool) {
	p := it.parked(store.StateCollecting)
	p.Group, p.Attempt = group, 0
	if !l.dispatcher.collect.IsByKey() {
		p.Envelope.Slot = slotOf(group)
	}
	l.end(it, Settlement{Parked: &p, Ask: ask})
}

// slotOf returns the slot of a group, whose members come from all lanes.
func slotOf(group string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(group)) // never fails
	return int(h.Sum32() % store.Slots)
}

// Begins returns when the hours of the sink begin: now if they have begun, or depend on the delivery. Until then no
// collection needs to be closed, so that what comes meanwhile is a part of it.
func (l *Lane) Begins(now time.Time) time.Time { return l.dispatcher.begins(now) }

// Superseded counts deliveries that the settle half has removed.
func (l *Lane) Superseded(n int) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	l.stats.Superseded += int64(n)
}
