package tables

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// CountParked counts what matches; see store.Inspector.
func (t *Tables) CountParked(ctx context.Context, f store.ParkedFilter) (counts []store.ParkedCount, changed time.Time, err error) {
	defer t.tried(&err, "count parked deliveries")
	last := t.run.time()
	err = t.run.Each(ctx, t.db, func(rows *sql.Rows) error {
		var c store.ParkedCount
		err := rows.Scan(&c.Sink, &c.State, &c.Count, &c.HookError, &last)
		counts = append(counts, c)
		if last.After(changed) {
			changed = last.Time
		}
		return err
	}, `SELECT sink, state, count(*), max(hook_error), max(updated_at) FROM (SELECT sink, `+presentState+` AS state, hook_error, updated_at FROM {parked} p WHERE ?) counted
		GROUP BY sink, state ORDER BY sink, state {whole parked}`, t.matches(f))
	if err == nil && len(counts) == 0 && f.Sink != "" {
		err = t.knows(ctx, f.Sink)
	}
	return counts, changed, err
}

// knows returns store.ErrUnknownSink for a sink that has neither cursors nor parked deliveries.
func (t *Tables) knows(ctx context.Context, sink string) error {
	traces, err := t.traces(ctx, sink)
	if err == nil && traces.Cursors == 0 && traces.Parked == 0 {
		err = t.unknownSink(ctx, t.db, sink)
	}
	return err
}

// FindParked returns what matches; see store.Inspector.
func (t *Tables) FindParked(ctx context.Context, f store.ParkedFilter, after store.ParkedPlace, limit int) ([]store.ParkedDelivery, error) {
	where := t.matches(f)
	where.and(`(sink, "offset", id) > (?, ?, ?)`, after.Sink, after.Offset, after.ID)
	found, _, err := t.parked(ctx, t.db, limit, parkedQuery(SQL(`? ORDER BY sink, "offset", id LIMIT ?`, where, limit)))
	if err != nil {
		return nil, t.failed(err, "list parked deliveries")
	}
	return found, nil
}

// matches is the condition of a filter on parked deliveries, called p.
func (t *Tables) matches(f store.ParkedFilter) Expr {
	where := SQL(`true`)
	for _, c := range []struct{ column, want string }{{`p.sink`, f.Sink}, {`p.id`, f.ID}, {`p."key"`, f.Key}} {
		if c.want != "" {
			where.and(c.column+` = ?`, c.want)
		}
	}
	if !f.Types.None() && !f.Types.All() {
		where.and(`?`, t.dialect.Types(f.Types))
	}
	if len(f.States) > 0 {
		state := `p.state`
		if slices.Contains(f.States, store.StateScheduled) || slices.Contains(f.States, store.StateCancelled) {
			state = presentState
		}
		where.and(`?`, anyOf(state, f.States))
	}
	if f.Key != "" && hold(f.States) {
		where.and(`p."key" <> '' AND p.` + keyed) // the index's own condition, which SQLite requires
	}
	if f.Heads {
		// Not one subquery for each row: a key may have any number of rows.
		where.and(`p.state = 'dead' AND (p.sink, p."key", p."offset") IN (SELECT sink, "key", min("offset") FROM {parked}
			WHERE "key" <> '' AND ` + keyed + ` GROUP BY sink, "key")`)
	}
	if len(f.Places) > 0 {
		where.and(`(?)`, t.at(f.Places))
	}
	if !f.Until.IsZero() {
		where.and(`p.updated_at <= ?`, t.dialect.Time(f.Until))
	}
	if f.OlderThan > 0 {
		where.and(`p.first_parked_at < ?`, t.dialect.NowPlus(-f.OlderThan))
	}
	if f.NewerThan > 0 {
		where.and(`p.first_parked_at >= ?`, t.dialect.NowPlus(-f.NewerThan))
	}
	if f.Error != "" {
		where.and(t.dialect.Position()+`(lower(p.last_error), lower(?)) > 0`, f.Error)
	}
	return where
}

// hold reports whether a filter selects only states of the index of keys.
func hold(states []store.State) bool {
	for _, s := range states {
		if s != store.StateRetrying && s != store.StateBlocked && s != store.StateDead {
			return false
		}
	}
	return len(states) > 0
}

// at is the condition that a parked delivery, called p, is at one of the places.
func (t *Tables) at(places []store.ParkedPlace) Expr {
	refs := make(map[string][]store.Ref)
	for _, place := range places {
		refs[place.Sink] = append(refs[place.Sink], place.Ref)
	}
	var parts []Expr
	for _, sink := range slices.Sorted(maps.Keys(refs)) {
		parts = append(parts, SQL(`p.sink = ? AND (p."offset", p.id) IN (?)`, sink, t.dialect.Refs(refs[sink])))
	}
	return join(` OR `, parts)
}
