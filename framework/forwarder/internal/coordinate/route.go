package coordinate

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// The database has the types that each sink takes; see store.Leases. A forwarder with other routes,
// when it starts or reloads, makes them wanted, so the one that starts last decides. Then all
// forwarders release the lanes of the sinks that change, and those of SinkUnrouted, and one of them
// changes the types. A forwarder works only on the lanes of sinks that take what its routes say.

// routes is what a coordinator knows about the types of sinks.
type routes struct {
	asked   map[string]notification.TypeFilter // that this forwarder has wanted last
	other   map[string]bool                    // sinks that take other types, by the last look
	had     map[string]time.Time               // when this forwarder had sinks last
	waits   bool                               // for what sinks of an earlier schema take
	running bool                               // a change is being made
	failing *pace.Trouble
}

// takes reports whether the work on a sink takes what its cursor says.
func (s Sink) takes(name string, types *notification.TypeFilter) bool {
	switch {
	case types == nil:
		return false
	case name == store.SinkUnrouted:
		return !types.None()
	}
	return reflect.DeepEqual(s.Types, *types)
}

// mayCut reports whether the lanes of a sink may be cut while its cursor says what it takes. Those of SinkUnrouted also
// while every type has a route, although no one works on them then.
func (s Sink) mayCut(name string, types *notification.TypeFilter) bool {
	return s.takes(name, types) || name == store.SinkUnrouted && types != nil
}

// delivers returns the sinks that this forwarder can deliver to.
func (k *Coordinator) delivers() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(k.Sinks)), func(sink string) bool { return k.routes.other[sink] })
}

// route makes the types of the routes wanted, and changes those of sinks whose lanes are free. It returns
// the lanes, with those paused that this forwarder must not take.
func (k *Coordinator) route(m store.Membership) []store.LaneState {
	m.Lanes = slices.Clone(m.Lanes)
	mine := k.Takes()
	k.routes.note(mine)
	sinks := make(map[string]*store.LaneState)
	for i := range m.Lanes {
		if l := &m.Lanes[i]; sinks[l.Lane.Sink] == nil || l.Types == nil {
			sinks[l.Lane.Sink] = l
		}
	}
	ask := k.toAsk(m.Members, sinks, mine)
	wanted := len(ask) > 0
	for _, l := range sinks {
		wanted = wanted || l.WantedTypes != nil
	}
	free := true
	for i := range m.Lanes {
		l := &m.Lanes[i]
		sink, isMine := k.Sinks[l.Lane.Sink]
		_, asked := ask[l.Lane.Sink]
		switch {
		case asked, l.WantedTypes != nil, wanted && l.Lane.Sink == store.SinkUnrouted:
			free = free && l.Owner == ""
			l.Paused = l.Paused || l.Owner == "" || l.Owner == k.Owner // what others have is awaited
			if h := k.held[idOf(l.Lane)]; h != nil && !h.leaving {
				h.leave()
			}
		case isMine && !sink.takes(l.Lane.Sink, l.Types):
			l.Paused = true
		}
	}
	if wanted && (free || len(ask) > 0) {
		k.changeTypes(ask)
	}
	return m.Lanes
}

// note notes the routes that this forwarder has now.
func (r *routes) note(mine map[string]notification.TypeFilter) {
	if r.had == nil {
		r.had = make(map[string]time.Time)
	}
	for sink := range mine {
		r.had[sink] = time.Now()
	}
}

// toAsk returns what this forwarder wants the sinks to take: what its routes say, once after each
// change of them, and again when no other forwarder works on a sink. A sink that this forwarder had
// until a reload, and that no other has, takes nothing. Any other sink that is away keeps its types, as
// its cursors keep its rows: its forwarder may come back.
func (k *Coordinator) toAsk(members []store.Member, sinks map[string]*store.LaneState, mine map[string]notification.TypeFilter) map[string]notification.TypeFilter {
	others := make(map[string]bool)
	for _, member := range members {
		for _, sink := range member.Sinks {
			others[sink] = others[sink] || member.Owner != k.Owner
		}
	}
	unknown := unknownTypes(sinks, mine)
	k.logUnknown(unknown)
	isNew := !reflect.DeepEqual(k.routes.asked, mine)
	ask := make(map[string]notification.TypeFilter)
	before := k.routes.other
	k.routes.other = make(map[string]bool)
	for sink, types := range mine {
		l := sinks[sink]
		if l == nil || len(k.uncut) > 0 {
			return nil // its cursors come first
		}
		if sink == store.SinkUnrouted { // it takes what is left
			if l.Types == nil && l.WantedTypes == nil && len(unknown) == 0 {
				ask[sink] = types
			}
			continue
		}
		present := l.Types
		if l.WantedTypes != nil {
			present = l.WantedTypes
		}
		if present != nil && reflect.DeepEqual(*present, types) {
			continue
		}
		if isNew || l.WantedTypes == nil && !others[sink] {
			ask[sink] = types
		} else {
			k.routes.other[sink] = true
			if _, works := k.Sinks[sink]; works && !before[sink] {
				k.Logger.Info("another forwarder has other routes to the sink, and delivers to it", "sink", sink)
			}
		}
	}
	for sink, had := range k.routes.had {
		l := sinks[sink]
		if _, isMine := mine[sink]; isMine || l == nil || sink == store.SinkUnrouted {
			continue
		}
		switch {
		case others[sink] && time.Since(had) > 2*k.Lease:
			delete(k.routes.had, sink) // it is another forwarder's now
		case !others[sink] && l.Types != nil && !l.Types.None() && l.WantedTypes == nil:
			ask[sink] = notification.TypeFilter{}
		}
	}
	if len(ask) == 0 {
		k.routes.asked = mine
	}
	return ask
}

// unknownTypes returns the sinks of an earlier schema for which SinkUnrouted waits, since the database
// does not have what they take.
func unknownTypes(sinks map[string]*store.LaneState, mine map[string]notification.TypeFilter) (unknown []string) {
	if u := sinks[store.SinkUnrouted]; u == nil || u.Types != nil {
		return nil
	}
	for sink, l := range sinks {
		if _, isMine := mine[sink]; !isMine && l.Types == nil && l.WantedTypes == nil {
			unknown = append(unknown, sink)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// logUnknown logs once what SinkUnrouted waits for.
func (k *Coordinator) logUnknown(unknown []string) {
	if len(unknown) > 0 && !k.routes.waits {
		k.Logger.Warn("what no route matches waits until it is known what these sinks take: start their forwarders, or use waybill forget for those that are gone", "sinks", unknown)
	}
	k.routes.waits = len(unknown) > 0
}

// changeTypes asks for types, and changes those that are wanted if all their lanes are free.
func (k *Coordinator) changeTypes(ask map[string]notification.TypeFilter) {
	if k.routes.failing == nil {
		k.routes.failing = pace.NewTrouble(k.Logger, "changing the types that sinks take", 0)
	}
	if k.routes.running || time.Now().Before(k.routes.failing.Until()) {
		return
	}
	k.routes.running = true
	mine := k.Takes()
	go func() {
		done, err := k.Store.Route(k.stop, ask)
		k.ended <- func() {
			k.routes.running = false
			if err != nil {
				if k.stop.Err() == nil {
					k.routes.failing.Met(err)
				}
				return
			}
			k.routes.failing.Over()
			if len(ask) > 0 {
				k.routes.asked = mine
			}
			if done || len(ask) > 0 { // otherwise it is tried again at the next look
				k.heartbeat = time.Time{}
				k.Nudge()
			}
		}
	}()
}
