package dispatch

import (
	"container/heap"
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/forwarder/internal/fairqueue"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
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

// gather holds the newest items of keys, which have no turn yet.
type gather struct {
	newest map[string]*gathered
	order  checks
	alarm  alarm
}

// gathered is a collection of which only the newest item is left.
type gathered struct {
	key         string
	it          *item     // nil once it has got its turn
	first, last time.Time // when its first and its last member came
	members     int
}

// check is when to look whether a collection is due. A member that comes later does not move it.
type check struct {
	at time.Time
	of *gathered
}

// checks is a heap of checks, the earliest first.
type checks []check

func (c checks) Len() int           { return len(c) }
func (c checks) Less(i, j int) bool { return c[i].at.Before(c[j].at) }
func (c checks) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }

// Push implements heap.Interface.
func (c *checks) Push(x any) { *c = append(*c, x.(check)) }

// Pop implements heap.Interface.
func (c *checks) Pop() any {
	last := len(*c) - 1
	x := (*c)[last]
	*c = (*c)[:last]
	return x
}

// add adds an item to the collection of its key.
func (g *gather) add(l *Lane, it *item) {
	now, terms := time.Now(), l.dispatcher.collect
	of := g.newest[it.Key]
	if of == nil {
		of = &gathered{key: it.Key, first: now}
		g.newest[it.Key] = of
		at := now.Add(min(terms.Wait, terms.MaxWait))
		heap.Push(&g.order, check{at, of})
		g.alarm.set(at)
	} else {
		l.supersede(of.it, it)
	}
	it.gathered = true
	of.it, of.last, of.members = it, now, of.members+1
	if of.members == terms.Size {
		l.letKeyGo(it.Key)
	}
}

// remove removes a collection that gets its turn. Its check stays for a while, without the item's memory.
func (g *gather) remove(of *gathered) {
	delete(g.newest, of.key)
	of.it = nil
	if len(g.order) > 2*len(g.newest)+leastChecks {
		g.order = slices.DeleteFunc(g.order, func(c check) bool { return c.of.it == nil })
		heap.Init(&g.order)
	}
}

// leastChecks is up to how many checks are not worth removing.
const leastChecks = 64

// forget drops everything.
func (g *gather) forget() {
	clear(g.newest)
	g.order = nil
	g.alarm.timer.Stop()
	g.alarm.rang()
}

// letDueGo gives the collections that are due their turn.
func (l *Lane) letDueGo() {
	d := l.dispatcher
	d.mu.Lock()
	defer d.mu.Unlock()
	g := &l.gather
	g.alarm.rang()
	now := time.Now()
	for len(g.order) > 0 && !g.order[0].at.After(now) {
		of := heap.Pop(&g.order).(check).of
		if of.it == nil {
			continue
		}
		due := of.last.Add(d.collect.Wait)
		if by := of.first.Add(d.collect.MaxWait); by.Before(due) {
			due = by
		}
		if due.After(now) {
			heap.Push(&g.order, check{due, of})
			continue
		}
		l.letKeyGo(of.key)
	}
	if len(g.order) > 0 {
		g.alarm.set(g.order[0].at)
	}
}

// letKeyGo gives the collection of a key its turn. One that waits behind the head of the key is superseded.
func (l *Lane) letKeyGo(key string) {
	of := l.gather.newest[key]
	if of == nil {
		return
	}
	it := of.it
	l.gather.remove(of)
	l.enqueue(it)
	for l.keys.Waiting(key) > 1 {
		older, _ := l.keys.Pop(key)
		if !older.gathered {
			l.keys.Unpop(key, older)
			return
		}
		l.dispatcher.pending--
		l.supersede(older, it)
	}
}

// letAllGo gives all collections in memory their turn.
func (l *Lane) letAllGo() {
	for _, key := range slices.SortedFunc(maps.Keys(l.gather.newest), func(a, b string) int {
		return l.gather.newest[a].last.Compare(l.gather.newest[b].last)
	}) {
		l.letKeyGo(key)
	}
}

// gathersTooMuch reports that much of what the lane has in memory only waits for its collection.
func (l *Lane) gathersTooMuch() bool {
	return len(l.gather.newest) > 0 && 2*len(l.gather.newest) >= l.rows
}

// supersede settles an item instead of which another one is delivered.
func (l *Lane) supersede(it, by *item) {
	l.stats.Superseded++
	l.end(it, Settlement{Superseded: by.ID})
}

// supersedeParked settles the parked deliveries of a key before its last one, if that is enough. It returns false if
// the delivery gets its turn.
func (l *Lane) supersedeParked(p, last *store.Parked) bool {
	c := l.dispatcher.caller
	if p == last || c.Groups == nil || !l.dispatcher.collect.InMemory() || c.Group(context.Background(), &p.Envelope) == "" || c.Group(context.Background(), &last.Envelope) == "" {
		return false
	}
	it := l.itemOf(p)
	l.busy.add(it.ref(), p)
	l.supersede(it, l.itemOf(last))
	return true
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

// unit is a closed collection.
type unit struct {
	ref     store.CollectionRef
	members []store.Parked // in log order
	results []sinks.Result // of the last call
	// released is when its members became single deliveries, since the sink does not collect like this any more.
	released time.Time
	newest   bool // the last member is delivered instead of the others
}

// ResumeCollection gives a closed collection its turn. It returns false if one of its group is still worked
// on: then it stays in the table.
func (l *Lane) ResumeCollection(members []store.Parked) (taken bool) {
	d := l.dispatcher
	d.mu.Lock()
	defer d.mu.Unlock()
	u := &unit{ref: store.CollectionRef{Group: members[0].Group, Number: members[0].Collection}, members: members}
	if l.busy.groups[u.ref.Group] {
		return false
	}
	envelope := members[0].Envelope
	envelope.ID, envelope.Key = u.ref.ID(), "" // its group is its order
	it := &item{lane: l, state: store.StateCollecting, firstParked: members[0].FirstParkedAt, lastError: members[0].LastError, unit: u}
	it.Origin = fairqueue.FromParked
	it.Envelope, it.Sink = &envelope, d.name
	for i := range members {
		it.Attempt = max(it.Attempt, members[i].Attempt)
	}
	it.destination = d.caller.Destination(&notification.Delivery{Envelope: &members[0].Envelope, Sink: d.name})
	l.busy.addUnit(u)
	c := d.caller.Groups
	u.newest = c != nil && c.Newest // others were closed under another rule
	if len(members) > 1 && !u.newest && (c == nil || c.Collector == nil) {
		u.released = time.Now()
		l.end(it, Settlement{})
		return true
	}
	if made, remembered := l.remembered(it); remembered {
		u.results = make([]sinks.Result, len(members))
		l.end(it, made)
		return true
	}
	d.pending++
	d.offer(it)
	return true
}

// apart is the number of the collection that its members which are dead by themselves are. When they come back, the
// sink may have taken the others under the id of this one.
func (u *unit) apart() string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(u.ref.Number+" apart")).String()
}

// deliveries appends the members for the next attempt.
func (u *unit) deliveries(it *item, to []*notification.Delivery) []*notification.Delivery {
	for i := range u.members {
		to = append(to, &notification.Delivery{Envelope: &u.members[i].Envelope, Sink: it.Sink, Attempt: it.Attempt + 1})
	}
	return to
}

// park makes the row of a collection one of its first member: that has the attempts and the time of all.
func (u *unit) park(p *store.Parked) {
	p.Envelope, p.Group, p.Collection = u.members[0].Envelope, u.ref.Group, u.ref.Number
	if p.State == store.StateRetrying || p.State == store.StateQuiet {
		p.State = store.StateCollecting
	}
}

// judge returns the result of a collection: that of the members which the sink has got. Without any, all pass by.
func (u *unit) judge(results []sinks.Result) sinks.Result {
	u.results = append(u.results[:0:0], results...)
	for _, r := range results {
		if !caller.IsOfMember(r.Err) {
			return r
		}
	}
	return sinks.Result{Err: caller.ErrPassesBy}
}

// isPartial reports that some members were not a part of the delivery: the next lease makes it again, to know which.
func (u *unit) isPartial() bool {
	return u != nil && slices.ContainsFunc(u.results, func(r sinks.Result) bool { return caller.IsOfMember(r.Err) })
}

// count counts an item as what became of it; of a collection, each member, and those that are dead on their own.
func (it *item) count(ended *int64) {
	if it.unit == nil {
		*ended++
		return
	}
	stats := it.lane.stats
	if ended == &stats.Delivered && !it.unit.newest {
		stats.Collections++
	}
	for _, r := range it.unit.results {
		switch {
		case !caller.IsOfMember(r.Err):
			*ended++
		case errors.Is(r.Err, caller.ErrPassesBy):
			stats.PassedBy++
		default:
			stats.Dead++
		}
	}
}

// Members returns the settlement of each member of a collection; nil for a single delivery. A collection
// that is tried again is settled by the row of its first member, and those of others that have a time as well.
func (s *Settlement) Members() []Settlement {
	u := s.item.unit
	if u == nil {
		return nil
	}
	again := s.Parked != nil && s.Parked.State == store.StateCollecting
	var all []Settlement
	for i := range u.members {
		m := &u.members[i]
		if again && i > 0 && m.DueAt.IsZero() {
			continue
		}
		it := &item{lane: s.item.lane, state: store.StateCollecting, firstParked: m.FirstParkedAt, hookFailures: m.HookFailures}
		it.Envelope, it.Sink, it.Attempt = &m.Envelope, s.item.Sink, s.item.Attempt
		one := Settlement{item: it, Receipt: s.Receipt, Delivered: s.Delivered, HeldBack: s.HeldBack, Dead: s.Dead}
		var err error
		if i < len(u.results) {
			err = u.results[i].Err
		}
		switch {
		case !u.released.IsZero():
			p := it.parked(store.StateRetrying)
			p.DueAt = u.released // as for all, so that they keep their order
			one.Parked, one.Released = &p, true
		case u.newest && s.Delivered && i < len(u.members)-1:
			one.Delivered, one.HeldBack, one.Superseded = false, false, u.members[len(u.members)-1].Envelope.ID
		case again || !caller.IsOfMember(err):
			if s.Parked != nil {
				p := *s.Parked
				p.Envelope = m.Envelope
				one.Parked = &p
			}
		case errors.Is(err, caller.ErrPassesBy):
			one.Delivered, one.HeldBack = false, false
		default: // its own expression has failed
			p := it.parked(store.StateDead)
			p.Group, p.Collection, p.LastError = u.ref.Group, u.apart(), store.CutText(err.Error(), maxErrorText)
			if s.HeldBack {
				p.DueAt, p.HookError, p.HookFailures = s.Parked.DueAt, s.Parked.HookError, s.Parked.HookFailures
			}
			one.Delivered, one.Parked, one.Dead, one.Replaces = false, &p, deadReason(err), true
		}
		all = append(all, one)
	}
	return all
}

// Collected returns the collection that has ended with a settlement; false if none has.
func (s *Settlement) Collected() (ref store.CollectionRef, ok bool) {
	if u := s.item.unit; u != nil && (s.Parked == nil || s.Parked.State != store.StateCollecting) {
		return u.ref, true
	}
	return ref, false
}

// IsMember reports whether the settlement adds a member to an open collection.
func (s *Settlement) IsMember() bool {
	return s.Parked != nil && s.Parked.State == store.StateCollecting && s.Parked.Collection == ""
}

// addUnit adds a collection. Of its rows, those with a time are the ones that a query for due deliveries finds.
func (b *busy) addUnit(u *unit) {
	b.groups[u.ref.Group] = true
	row := parkedRow{state: store.StateBlocked}
	for i := range u.members {
		row.bytes += len(u.members[i].Envelope.Payload) + envelopeBytes
	}
	for i := range u.members {
		if m := &u.members[i]; i == 0 || !m.DueAt.IsZero() {
			row.state = store.StateCollecting
			b.rows[store.RefOf(&m.Envelope)] = row
			b.bytes, b.due = b.bytes+row.bytes, b.due+1
			row.bytes = 0
		}
	}
}

func (b *busy) removeUnit(u *unit) {
	delete(b.groups, u.ref.Group)
	for i := range u.members {
		b.remove(store.RefOf(&u.members[i].Envelope))
	}
}
