package acts

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// mostPast is how many past filters of a sink are known. Of what is older, the sink has nothing.
const mostPast = 32

// took is the condition that the sink took the type of a row when it passed the row, or still takes it
// before the change.
func (t *Acts) took(s *routed) tables.Expr {
	conditions := []tables.Expr{tables.SQL(`CASE`)}
	for i := range s.past() {
		p := &s.past()[i]
		conditions = append(conditions, tables.SQL(`WHEN ? THEN ?`, t.run.SettledInAny([]tables.Cursor{p.Cursor}), t.run.OfTypes(p.Types)))
	}
	if len(conditions) == 1 {
		return t.run.OfTypes(s.before)
	}
	return tables.Join(` `, append(conditions, tables.SQL(`ELSE ? END`, t.run.OfTypes(s.before))))
}

// past returns what the sink took earlier, the oldest first.
func (r *routed) past() []tables.Past { return r.cursors[0].Past }

// free reports whether no lane is leased.
func (r *routed) free() bool {
	return !slices.ContainsFunc(r.cursors, func(c tables.Cursor) bool { return c.Owner != "" })
}

// placePast compares the places of what sinks took earlier with the log.
func (t *Acts) placePast(ctx context.Context, q tables.Querier, cursors []tables.Cursor) (err error) {
	if t.run.Source != nil {
		return nil
	}
	var positions []json.RawMessage
	var all []*tables.Past
	for i := range cursors {
		for j := range cursors[i].Past {
			p := &cursors[i].Past[j]
			all, positions = append(all, p), append(positions, p.Position)
		}
	}
	if len(all) == 0 {
		return nil
	}
	places, err := t.run.Dialect.Places(ctx, q, positions)
	if err != nil {
		return err
	}
	for i, p := range all {
		p.Cursor = tables.Cursor{StoreLane: store.Lane{Slots: p.Slots}, Place: places[i]}
		if p.Cursor.Ahead, err = store.DecodeOffsets(p.Settled); err != nil {
			return err
		}
	}
	return nil
}

// pastOf returns what a sink took earlier as of after the change. What every other sink has passed is
// forgotten.
func (r *routing) pastOf(s *routed, last int64) []tables.Past {
	floor := last
	for _, other := range r.sinks {
		if other != s {
			floor = min(floor, other.floor())
		}
	}
	all := slices.DeleteFunc(slices.Clone(s.past()), func(p tables.Past) bool { return p.UpTo <= floor })
	for i := range s.cursors {
		c := &s.cursors[i]
		if last > floor && (len(c.Position) > 0 || len(c.Ahead) > 0) {
			all = append(all, tables.Past{Types: s.before, Slots: c.StoreLane.Slots, Position: c.Position, Settled: store.EncodeOffsets(c.Ahead), UpTo: last})
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
