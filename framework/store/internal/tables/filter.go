package tables

import (
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Matches is the condition of a filter on parked deliveries, called p.
func (r *Runner) Matches(f store.ParkedFilter) Expr {
	where := SQL(`true`)
	for _, c := range []struct{ column, want string }{{`p.sink`, f.Sink}, {`p.id`, f.ID}, {`p."key"`, f.Key}, {`p.collect_group`, f.Group}} {
		if c.want != "" {
			where.And(c.column+` = ?`, c.want)
		}
	}
	if !f.Types.None() && !f.Types.All() {
		where.And(`?`, r.Dialect.Types(f.Types))
	}
	if len(f.States) > 0 {
		state := `p.state`
		if slices.Contains(f.States, store.StateScheduled) || slices.Contains(f.States, store.StateCancelled) {
			state = PresentState
		}
		where.And(`?`, AnyOf(state, f.States))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Metadata)) {
		where.And(`?`, r.Dialect.MetadataIs(name, f.Metadata[name]))
	}
	if f.Key != "" && hold(f.States) {
		where.And(`p."key" <> '' AND p.` + keyed) // the index's own condition, which SQLite requires
	}
	if f.Group != "" {
		where.And(`p.collect_group <> ''`) // the same
	}
	if f.Heads {
		// Not one subquery for each row: a key may have any number of rows.
		where.And(`p.state = 'dead' AND (p.sink, p."key", p."offset") IN (SELECT sink, "key", min("offset") FROM {parked}
			WHERE "key" <> '' AND ` + keyed + ` GROUP BY sink, "key")`)
	}
	if f.Firsts {
		where.And(`(p.state <> 'collecting' OR p.due_at IS NOT NULL)`)
	}
	if len(f.Places) > 0 {
		where.And(`(?)`, r.at(f.Places))
	}
	if !f.Until.IsZero() {
		where.And(`p.updated_at <= ?`, r.Dialect.BindTime(f.Until))
	}
	if f.OlderThan > 0 {
		where.And(`p.first_parked_at < ?`, r.Dialect.NowPlus(-f.OlderThan))
	}
	if f.NewerThan > 0 {
		where.And(`p.first_parked_at >= ?`, r.Dialect.NowPlus(-f.NewerThan))
	}
	if f.Error != "" {
		where.And(r.Dialect.Position()+`(lower(p.last_error), lower(?)) > 0`, f.Error)
	}
	return where
}

// hold reports whether a filter selects only states of the index of keys.
func hold(states []store.State) bool {
	for _, s := range states {
		if s != store.StateRetrying && s != store.StateBlocked && s != store.StateDead && s != store.StateQuiet {
			return false
		}
	}
	return len(states) > 0
}

// at is the condition that a parked delivery, called p, is at one of the places.
func (r *Runner) at(places []store.ParkedPlace) Expr {
	refs := make(map[string][]store.Ref)
	for _, place := range places {
		refs[place.Sink] = append(refs[place.Sink], place.Ref)
	}
	var parts []Expr
	for _, sink := range slices.Sorted(maps.Keys(refs)) {
		parts = append(parts, SQL(`p.sink = ? AND (p."offset", p.id) IN (?)`, sink, r.Dialect.Refs(refs[sink])))
	}
	return Join(` OR `, parts)
}

// During adds that a row of the log occurred at since or later, and before until, unless they are zero.
func (r *Runner) During(where *Expr, since, until time.Time) {
	d := r.Dialect
	if !since.IsZero() {
		where.And(d.LogTime(`occurred_on`)+` >= `+d.LogTime(`?`), d.BindTime(since))
	}
	if !until.IsZero() {
		where.And(d.LogTime(`occurred_on`)+` < `+d.LogTime(`?`), d.BindTime(until))
	}
}

// OfTypes is the condition that a filter selects a row by its type.
func (r *Runner) OfTypes(types notification.TypeFilter) Expr {
	switch {
	case types.All():
		return SQL(`true`)
	case types.None():
		return SQL(`false`)
	}
	return r.Dialect.Types(types)
}
