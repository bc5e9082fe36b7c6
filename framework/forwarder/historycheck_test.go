package forwarder_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// The rules that each history keeps.

// place names a parked delivery.
type place struct{ sink, id string }

// parked returns all parked deliveries with their states.
func (w *world) parked() map[place]store.State {
	all := make(map[place]store.State)
	rows, err := w.own.db.QueryContext(w.ctx, `SELECT sink, id, state FROM outbox_parked`)
	if err != nil {
		w.breaks("parked: %v", err)
		return all
	}
	defer rows.Close()
	for rows.Next() {
		var p place
		var state store.State
		if err := rows.Scan(&p.sink, &p.id, &state); err != nil {
			w.breaks("parked: %v", err)
		}
		all[p] = state
	}
	if err := rows.Err(); err != nil {
		w.breaks("parked: %v", err)
	}
	return all
}

// Bounds of the time in which everything is delivered once everything is well.
const (
	drainTime = 10 * time.Minute
	drainLook = time.Second
	// lossTime is how long what is in no one's hands may take: it waits neither for a retry nor for a destination,
	// but perhaps for a lease of a clock that was ahead.
	lossTime = 2 * time.Minute
)

// Of what is missing, this is in no one's hands.
const (
	isLost     = "is neither delivered to %s nor parked"
	isNobodies = "is no one's"
)

// mayComeLate reports whether what is missing is in someone's hands.
func mayComeLate(missing string) bool {
	lost, _, _ := strings.Cut(isLost, "%s")
	return !strings.Contains(missing, lost) && !strings.Contains(missing, isNobodies)
}

// drain waits until everything is delivered, but to the excused sink, and returns what is missing after the time
// in which it should be. At the end of a history people also requeue and reroute what is dead.
func (w *world) drain(excused string, last bool) (missing []string) {
	pause, changed := drainLook, time.Now()
	for began := time.Now(); time.Since(began) < drainTime; time.Sleep(pause) {
		before := missing
		if missing = w.missing(excused, last); len(missing) == 0 {
			return nil
		}
		if !slices.Equal(before, missing) {
			changed = time.Now()
		}
		if time.Since(changed) > lossTime && !slices.ContainsFunc(missing, mayComeLate) {
			return missing
		}
		if time.Since(began) > 20*drainLook {
			pause = 10 * drainLook
		}
		if last {
			w.revive()
		}
	}
	return missing
}

// revive requeues and reroutes what is dead.
func (w *world) revive() {
	dead := make(map[string]bool)
	for p, state := range w.parked() {
		if state == store.StateDead {
			dead[p.sink] = true
		}
	}
	for sink := range dead {
		var err error
		if sink == store.SinkUnrouted {
			err = w.reroute()
		} else {
			err = w.requeue(sink)
		}
		if err != nil && !errors.Is(err, errLocked) {
			w.breaks("revive %s: %v", sink, err)
		}
	}
}

// isFar reports whether a notification is scheduled for a time after the history.
func (r *row) isFar() bool { return r.DeliverAt.Year() > 2100 }

// missing says what is not delivered, and not parked for a reason.
func (w *world) missing(excused string, last bool) (all []string) {
	parked := w.parked()
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, state := range parked {
		if why := w.unfinished(p, state, parked, last); why != "" && p.sink != excused {
			all = append(all, why)
		}
	}
	for _, r := range w.rows {
		sinks := w.certain(r.Type)
		taken := r.cancelled || r.isFar() || len(sinks) > 0
		for _, sink := range sinks {
			if sink == excused || r.cancelled || r.dropped[sink] || w.delivered(sink, r.ID) || w.isSuperseded(sink, r, parked) {
				continue
			}
			if _, is := parked[place{sink, r.ID}]; !is {
				all = append(all, fmt.Sprintf("%s "+isLost, r, sink))
			}
		}
		for _, sink := range append(w.sinks, store.SinkUnrouted) {
			_, is := parked[place{sink, r.ID}]
			taken = taken || is || r.dropped[sink] || sink == excused || w.delivered(sink, r.ID) || w.isSuperseded(sink, r, parked)
		}
		if !taken {
			all = append(all, fmt.Sprintf("%s %s", r, isNobodies))
		}
	}
	for _, sink := range w.sinks {
		if n := w.destinations[sink].busy.Load(); last && n > 0 {
			all = append(all, fmt.Sprintf("%d calls of %s have not returned", n, sink))
		}
	}
	slices.Sort(all)
	return all
}

func (r *row) String() string {
	return fmt.Sprintf("%s (%.10s, key %.10q)", shortened(r.ID), r.Type, r.Key)
}

// shortened returns an id, without the end of a long one.
func shortened(id string) string {
	if len(id) > 30 {
		id = id[:20] + "..."
	}
	return id
}

// unfinished says why a parked delivery must not stay parked; "" if it may.
func (w *world) unfinished(p place, state store.State, parked map[place]store.State, last bool) string {
	r := w.byID[p.id]
	switch {
	case r == nil:
		return fmt.Sprintf("%.30s, which was rolled back, is parked for %s", p.id, p.sink)
	case state == store.StateScheduled && r.isFar():
		return ""
	case state == store.StateDead && p.sink == store.SinkUnrouted:
		if last && len(w.routes[len(w.routes)-1].of(r.Type)) > 0 {
			return fmt.Sprintf("%s has a route and is unrouted", r)
		}
		return ""
	case state == store.StateDead && !last:
		return ""
	case p.sink == "halting" && !last && (state == store.StateBlocked || state == store.StateScheduled) && w.isHalted(r.Key, parked):
		return ""
	}
	return fmt.Sprintf("%s is %s for %s", r, state, p.sink)
}

// isHalted reports whether a delivery of a key is dead that halts it.
func (w *world) isHalted(key string, parked map[place]store.State) bool {
	for p, state := range parked {
		if p.sink == "halting" && state == store.StateDead && w.byID[p.id] != nil && w.byID[p.id].Key == key {
			return true
		}
	}
	return false
}

// certain returns the sinks that take a type by all routes that there were.
func (w *world) certain(typ string) (all []string) {
	for _, sink := range w.sinks {
		if !slices.ContainsFunc(w.routes, func(r routing) bool { return !slices.Contains(r.of(typ), sink) }) {
			all = append(all, sink)
		}
	}
	return all
}

// delivered reports whether a sink has a notification.
func (w *world) delivered(sink, id string) bool {
	if sink == "bank" {
		w.bank.mu.Lock()
		defer w.bank.mu.Unlock()
		return slices.ContainsFunc(w.bank.committed, func(d *notification.Delivery) bool { return d.ID == id })
	}
	d := w.destinations[sink]
	return d != nil && slices.ContainsFunc(d.calls[id], func(c *call) bool { return c.ok })
}

// isSuperseded reports whether a later one of a group, of which the newest is enough, was delivered, dropped or is
// parked.
func (w *world) isSuperseded(sink string, r *row, parked map[place]store.State) bool {
	if sink != "newest" && sink != "newest-type" || groupOf(sink, &r.Envelope) == "" {
		return false
	}
	for _, later := range w.rows {
		if groupOf(sink, &later.Envelope) != groupOf(sink, &r.Envelope) || later.place <= r.place && !later.DeliverAt.After(r.committed) {
			continue
		}
		_, is := parked[place{sink, later.ID}]
		if is || later.dropped[sink] || w.deliveredSince(sink, later.ID, r.committed) || w.wasExcluded(sink, later) {
			w.counts["superseded"]++
			return true
		}
	}
	return false
}

// wasExcluded reports whether some routes had a notification for a sink and others had not. It may have superseded
// others before it was excluded.
func (w *world) wasExcluded(sink string, r *row) bool {
	takes := func(to routing) bool { return slices.Contains(to.of(r.Type), sink) }
	return slices.ContainsFunc(w.routes, takes) && !slices.Contains(w.certain(r.Type), sink)
}

// deliveredSince reports whether a delivery was made at a time, which a whole transaction may take, or later.
func (w *world) deliveredSince(sink, id string, since time.Time) bool {
	if sink == "bank" {
		return w.delivered(sink, id)
	}
	return slices.ContainsFunc(w.destinations[sink].calls[id], func(c *call) bool { return c.ok && !c.end.Before(since) })
}

// callsSince says which calls began after a time.
func (w *world) callsSince(since time.Time) (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for sink, d := range w.destinations {
		for id, calls := range d.calls {
			dropped := w.byID[id] != nil && w.byID[id].dropped[sink] // but it was in flight
			if n := len(calls); calls[n-1].begin.After(since) && !dropped {
				all = append(all, fmt.Sprintf("%.30s is delivered to %s, call %d", id, sink, n))
			}
		}
	}
	slices.Sort(all)
	return all
}

// check checks all that happened.
func (w *world) check() {
	if len(w.faults) == 0 {
		w.counts["no fault"]++
	}
	for _, sink := range w.sinks {
		d := w.destinations[sink]
		for id, calls := range d.calls {
			w.checkCalls(sink, id, calls)
		}
		if sink == "bank" {
			w.checkBank()
		} else {
			w.checkOrder(d)
			w.checkCollections(d)
		}
	}
	w.checkEffects()
}

// checkCalls checks the calls for one notification.
func (w *world) checkCalls(sink, id string, calls []*call) {
	r := w.byID[id]
	if r == nil {
		w.breaks("%.30s was rolled back and is delivered to %s", id, sink)
		return
	}
	if !slices.ContainsFunc(w.routes, func(to routing) bool { return slices.Contains(to.of(r.Type), sink) }) {
		w.breaks("%s is delivered to %s, which never took its type", r, sink)
	}
	first := calls[0].begin
	if r.DeliverAt.After(first) {
		w.breaks("%s is delivered to %s %s before its time", r, sink, r.DeliverAt.Sub(first))
	}
	if r.cancelled {
		w.breaks("%s was cancelled and is delivered to %s", r, sink)
	}
	if sink != "bank" {
		w.checkRepeats(r, sink, calls)
	}
}

// checkRepeats looks for deliveries that were repeated without a reason.
func (w *world) checkRepeats(r *row, sink string, calls []*call) {
	made := slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return !c.ok })
	slices.SortStableFunc(made, func(a, b *call) int { return a.end.Compare(b.end) })
	allowed := r.replayed[sink]
	for i, again := range made {
		if i == 0 {
			continue
		}
		w.counts["repeat"]++
		before := made[i-1]
		switch {
		case before.late || again.late || w.faultExplains(before):
		case allowed > 0:
			allowed--
		default:
			w.breaks("%s is delivered to %s by %s at %s and again by %s at %s without a reason", r, sink,
				before.node, before.end.Sub(w.began), again.node, again.begin.Sub(w.began))
		}
	}
}

// aftermath is how long a fault may have effects: until leases have expired and what waits is tried again.
const aftermath = 30 * time.Second

// faultExplains reports whether a fault may have prevented that a call was settled. Its checkpoint may have waited for
// other writers until the fault began.
func (w *world) faultExplains(c *call) bool {
	return slices.ContainsFunc(w.faults, func(f *fault) bool {
		return (f.node == nil || f.node == c.node) && f.from.Before(c.end.Add(lockTimeout)) && f.to.Add(aftermath).After(c.begin)
	})
}

// checkOrder checks the order of each key: no delivery begins before the earlier ones of its key were made once,
// or were dead, dropped or moved by people.
func (w *world) checkOrder(d *destination) {
	last := make(map[string]*row) // by key
	for _, r := range w.rows {
		calls := d.calls[r.ID]
		if r.Key == "" || !r.DeliverAt.IsZero() || r.moved || !slices.Contains(w.certain(r.Type), d.name) || len(calls) == 0 || w.wasDead(d, calls) || r.dropped[d.name] {
			continue
		}
		begun := slices.MinFunc(calls, func(a, b *call) int { return a.begin.Compare(b.begin) }).begin
		key := r.Key
		if d.name == "digest" || d.name == "newest-type" { // another group is another collection
			key += " " + r.Type
		}
		if before := last[key]; before != nil {
			if made := firstMade(d.calls[before.ID]); begun.Before(made) && !isTogether(calls, d.calls[before.ID]) && !w.wasGivenUp(d, before, made) {
				w.breaks("%s begins to be delivered to %s at %s, before %s is at %s", r, d.name, begun.Sub(w.began), before, made.Sub(w.began))
			}
		}
		if !firstMade(calls).IsZero() {
			last[key] = r
		}
	}
}

// wasGivenUp reports whether a call that was abandoned, or of a process that had lost its lane, is the only one, since
// the next process has superseded the delivery; or a replay made it after it was superseded.
func (w *world) wasGivenUp(d *destination, r *row, made time.Time) bool {
	if d.name != "newest" && d.name != "newest-type" {
		return false
	}
	return r.replayed[d.name] > 0 || slices.ContainsFunc(d.calls[r.ID], func(c *call) bool { return c.end.Equal(made) && (c.late || w.faultExplains(c)) })
}

// isTogether reports whether two deliveries were in one collection.
func isTogether(calls, others []*call) bool {
	return slices.ContainsFunc(calls, func(c *call) bool { return slices.Contains(others, c) })
}

// checkCollections checks that a collection is the same in each attempt, and that a delivery is in one only, but for
// what people do.
func (w *world) checkCollections(d *destination) {
	members, of := make(map[string]string), make(map[string]map[string]bool)
	people := slices.ContainsFunc(w.rows, func(r *row) bool { return r.dropped[d.name] || r.replayed[d.name] > 0 || r.moved })
	for id, calls := range d.calls {
		of[id] = make(map[string]bool)
		for _, c := range calls {
			if c.together == nil {
				continue
			}
			of[id][c.together.id] = true
			if before, known := members[c.together.id]; known && before != c.together.members && !people {
				w.breaks("collection %s of %s has once the members %s and once %s", c.together.id, d.name, before, c.together.members)
			}
			members[c.together.id] = c.together.members
		}
		if n := len(of[id]); n > 1 && !people {
			w.breaks("%.20s is in %d collections of %s", id, n, d.name)
		}
	}
}

// wasDead reports whether a delivery may have been dead.
func (w *world) wasDead(d *destination, calls []*call) bool {
	failed := 0
	for _, c := range calls {
		if c.refused {
			return true
		}
		if !c.ok {
			failed++
		}
	}
	return d.name == "halting" && failed >= haltingAttempts
}

// firstMade returns when a delivery was first made; zero if it was not.
func firstMade(calls []*call) (at time.Time) {
	for _, c := range calls {
		if c.ok && (at.IsZero() || c.end.Before(at)) {
			at = c.end
		}
	}
	return at
}

// checkBank checks that what is committed is there once, in the order of each key.
func (w *world) checkBank() {
	times, last := make(map[string]int), make(map[string]int)
	for _, v := range w.bank.committed {
		times[v.ID]++
		r := w.byID[v.ID]
		if r == nil || times[v.ID] > 1 || r.Key == "" || !r.DeliverAt.IsZero() || r.moved || r.dropped["bank"] || !slices.Contains(w.certain(r.Type), "bank") || w.wasDead(w.destinations["bank"], w.destinations["bank"].calls[v.ID]) {
			continue
		}
		if r.place < last[r.Key] {
			w.breaks("%s is committed behind a later one of its key", r)
		}
		last[r.Key] = max(last[r.Key], r.place)
	}
	for id, n := range times {
		if r := w.byID[id]; r != nil && n > 1+r.replayed["bank"] && !r.moved {
			w.breaks("%s is committed %d times", r, n)
		}
	}
}

// checkEffects checks that the hook has had one effect for each delivery.
func (w *world) checkEffects() {
	if w.destinations["hook"] == nil {
		return
	}
	times := make(map[string]int)
	for _, id := range w.own.texts(`SELECT what FROM effects`) {
		times[id]++
	}
	for id := range w.destinations["hook"].calls {
		r := w.byID[id]
		if r == nil {
			continue
		}
		least := 1
		if r.dropped["hook"] || !w.delivered("hook", id) || !slices.Contains(w.certain(r.Type), "hook") {
			least = 0 // what a dead process delivered, and the sink does not take any more, is not delivered again
		}
		if n := times[id]; n < least || n > 1+r.replayed["hook"] {
			w.breaks("%s has %d effects of the hook", r, n)
		}
	}
}
