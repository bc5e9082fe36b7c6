package dispatch

import (
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/forwarder/internal/fairqueue"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

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
	it := &item{lane: l, state: store.StateCollecting, firstParked: members[0].FirstParkedAt, past: pastOf(&members[0]), unit: u}
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
		it := &item{lane: s.item.lane, state: store.StateCollecting, firstParked: m.FirstParkedAt, hookFailures: m.HookFailures, past: pastOf(m)}
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
