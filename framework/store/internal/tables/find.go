package tables

import (
	"context"
	"database/sql"
	"slices"

	"github.com/waybill-go/waybill/framework/store"
)

// CountParked counts what matches; see store.Inspector.
func (t *Tables) CountParked(ctx context.Context, f store.ParkedFilter) ([]store.ParkedCount, error) {
	counts, err := t.countParked(ctx, f)
	if err == nil && len(counts) == 0 && f.Sink != "" {
		err = t.knows(ctx, f.Sink)
	}
	if err != nil {
		return nil, t.failed(err, "count parked deliveries")
	}
	return counts, nil
}

func (t *Tables) countParked(ctx context.Context, f store.ParkedFilter) (counts []store.ParkedCount, err error) {
	err = t.run.Each(ctx, t.db, func(rows *sql.Rows) error {
		var c store.ParkedCount
		err := rows.Scan(&c.Sink, &c.State, &c.Count, &c.HookError)
		counts = append(counts, c)
		return err
	}, `SELECT sink, state, count(*), max(hook_error) FROM (SELECT sink, `+presentState+` AS state, hook_error FROM {parked} p WHERE ?) counted
		GROUP BY sink, state ORDER BY sink, state {whole parked}`, t.matches(f))
	return counts, err
}

// knows returns store.ErrUnknownSink for a sink that has neither cursors nor
// anything parked.
func (t *Tables) knows(ctx context.Context, sink string) error {
	traces, err := t.traces(ctx, sink)
	if err == nil && traces.Cursors == 0 && traces.Parked == 0 {
		err = t.unknownSink(ctx, t.db, sink)
	}
	return err
}

// FindParked lists what matches; see store.Inspector.
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
	if f.Heads {
		// Not one look for each row: how many a key has is not known.
		where.and(`p.state = 'dead' AND (p.sink, p."key", p."offset") IN (SELECT sink, "key", min("offset") FROM {parked}
			WHERE "key" <> '' AND ` + keyed + ` GROUP BY sink, "key")`)
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
