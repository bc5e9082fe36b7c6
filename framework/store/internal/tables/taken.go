package tables

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// mostPast is how many past filters of a sink are known. Of what is older, the sink has nothing.
const mostPast = 32

// past is what a sink took until it was at a place: the rows that were settled there by then. With
// SinkUnrouted it is that of a sink that was forgotten.
type past struct {
	Types    notification.TypeFilter `json:"types"`
	Slots    store.SlotRange         `json:"slots"`
	Position json.RawMessage         `json:"position,omitempty"`
	Settled  string                  `json:"settled,omitempty"`
	UpTo     int64                   `json:"up_to"` // no row that was settled has a higher offset

	cursor cursor // at the place
}

// took is the condition that the sink took the type of a row when it passed the row, or still takes it
// before the change.
func (t *Tables) took(s *routed) Expr {
	conditions := []Expr{SQL(`CASE`)}
	for i := range s.past() {
		p := &s.past()[i]
		conditions = append(conditions, SQL(`WHEN ? THEN ?`, t.settledInAny([]cursor{p.cursor}), t.ofTypes(p.Types)))
	}
	if len(conditions) == 1 {
		return t.ofTypes(s.before)
	}
	return join(` `, append(conditions, SQL(`ELSE ? END`, t.ofTypes(s.before))))
}

// past returns what the sink took earlier, the oldest first.
func (r *routed) past() []past { return r.cursors[0].past }

// free reports whether no lane is leased.
func (r *routed) free() bool {
	return !slices.ContainsFunc(r.cursors, func(c cursor) bool { return c.Owner != "" })
}

// placePast compares the places of what sinks took earlier with the log.
func (t *Tables) placePast(ctx context.Context, q Querier, cursors []cursor) (err error) {
	if t.source != nil {
		return nil
	}
	var positions []json.RawMessage
	var all []*past
	for i := range cursors {
		for j := range cursors[i].past {
			p := &cursors[i].past[j]
			all, positions = append(all, p), append(positions, p.Position)
		}
	}
	if len(all) == 0 {
		return nil
	}
	places, err := t.dialect.Places(ctx, q, positions)
	if err != nil {
		return err
	}
	for i, p := range all {
		p.cursor = cursor{lane: store.Lane{Slots: p.Slots}, place: places[i]}
		if p.cursor.ahead, err = store.DecodeOffsets(p.Settled); err != nil {
			return err
		}
	}
	return nil
}

// pastOf returns what a sink took earlier as of after the change. What every other sink has passed is
// forgotten.
func (r *routing) pastOf(s *routed, last int64) []past {
	floor := last
	for _, other := range r.sinks {
		if other != s {
			floor = min(floor, other.floor())
		}
	}
	all := slices.DeleteFunc(slices.Clone(s.past()), func(p past) bool { return p.UpTo <= floor })
	for i := range s.cursors {
		c := &s.cursors[i]
		if last > floor && (len(c.position) > 0 || len(c.ahead) > 0) {
			all = append(all, past{Types: s.before, Slots: c.lane.Slots, Position: c.position, Settled: store.EncodeOffsets(c.ahead), UpTo: last})
		}
	}
	if lanes := len(s.cursors); len(all) > mostPast*lanes {
		all = all[len(all)-mostPast*lanes:]
		for i := range lanes {
			all[i].Types = notification.TypeFilter{}
		}
	}
	return all
}
