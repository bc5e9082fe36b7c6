package acts

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store/internal/tables"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// CountReroute counts what a reroute would move; see store.Inspector.
func (t *Acts) CountReroute(ctx context.Context, q store.RerouteQuery) (counts []store.RerouteCount, changed time.Time, err error) {
	counts, err = tables.List(ctx, t.run, t.run.DB, func(rows *sql.Rows, c *store.RerouteCount) error {
		var last time.Time
		err := rows.Scan(&c.Type, &c.State, &c.Count, t.run.Into(&last))
		if last.After(changed) {
			changed = last
		}
		return err
	}, `SELECT type, state, count(*), max(updated_at) FROM {parked} p WHERE ? GROUP BY type, state {whole parked}`, t.rerouted(q))
	if err != nil {
		return nil, changed, t.run.Failed(err, "count what has a route now")
	}
	slices.SortFunc(counts, func(a, b store.RerouteCount) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.State, b.State))
	})
	return counts, changed, nil
}

// rerouted is the condition that a query selects a parked delivery, called p.
func (t *Acts) rerouted(q store.RerouteQuery) tables.Expr {
	routed := []tables.Expr{tables.SQL(`false`)}
	for _, types := range q.Sinks {
		routed = append(routed, t.run.OfTypes(types))
	}
	return tables.SQL(`? AND (?)`, t.run.Matches(q.Unrouted()), tables.Join(` OR `, routed))
}

// Reroute moves the next deliveries; see store.Operator.
func (t *Acts) Reroute(ctx context.Context, b store.RerouteBatch) (store.RerouteResult, error) {
	var result store.RerouteResult
	sinks := slices.Sorted(maps.Keys(b.Sinks))
	err := t.operate(ctx, failpoint.Reroute, b.Action, append(sinks, store.SinkUnrouted), func(tx *sql.Tx) ([]string, error) {
		found, err := t.unrouted(ctx, tx, b)
		if err != nil {
			return nil, err
		}
		result = store.RerouteResult{Last: b.After, Done: len(found) < b.Limit}
		if n := len(found); n > 0 {
			result.Last = found[n-1].Ref
		}
		moved, err := t.settledByAll(ctx, tx, b.Sinks, found)
		if err != nil {
			return nil, err
		}
		result.Changed, result.Left = len(moved), len(found)-len(moved)
		changed, err := t.move(ctx, tx, b.Sinks, moved)
		if err != nil {
			return nil, err
		}
		return changed, t.run.Count(ctx, tx, b.Action, len(moved))
	})
	if err != nil {
		return store.RerouteResult{}, t.run.Failed(err, "reroute")
	}
	return result, nil
}

// unrouted is a delivery that had no route.
type unrouted struct {
	store.Ref
	typ string
}

// refsOf returns the deliveries of some types.
func refsOf(deliveries []unrouted, types notification.TypeFilter) (refs []store.Ref) {
	for _, u := range deliveries {
		if types.Matches(u.typ) {
			refs = append(refs, u.Ref)
		}
	}
	return refs
}

// scanUnrouted reads the columns "offset", id and type.
func scanUnrouted(rows *sql.Rows, u *unrouted) error { return rows.Scan(&u.Offset, &u.ID, &u.typ) }

// unrouted selects the deliveries of a batch.
func (t *Acts) unrouted(ctx context.Context, tx *sql.Tx, b store.RerouteBatch) ([]unrouted, error) {
	where := t.rerouted(b.RerouteQuery)
	where.And(`("offset", id) > (?, ?)`, b.After.Offset, b.After.ID)
	return tables.List(ctx, t.run, tx, scanUnrouted, `SELECT "offset", id, type FROM {parked} p WHERE ? ORDER BY "offset", id {limit} ? {whole parked}`, where, b.Limit)
}

// settledByAll leaves out deliveries that a sink of their type has not settled yet and whose row is
// still in the log.
func (t *Acts) settledByAll(ctx context.Context, tx *sql.Tx, sinks map[string]notification.TypeFilter, found []unrouted) ([]unrouted, error) {
	early := make(map[store.Ref]bool)
	for sink, types := range sinks {
		refs := refsOf(found, types)
		if len(refs) == 0 {
			continue
		}
		cursors, err := t.run.PlacesOf(ctx, tx, sink)
		if err != nil {
			return nil, err
		}
		unsettled, err := t.unsettledOf(ctx, tx, cursors, refs)
		if err != nil {
			return nil, err
		}
		maps.Copy(early, unsettled)
	}
	return slices.DeleteFunc(found, func(u unrouted) bool { return early[u.Ref] }), nil
}

// unsettledOf returns which deliveries a sink will read from the log.
func (t *Acts) unsettledOf(ctx context.Context, tx *sql.Tx, cursors []tables.Cursor, refs []store.Ref) (map[store.Ref]bool, error) {
	unsettled := make(map[store.Ref]bool)
	err := t.run.Each(ctx, tx, func(rows *sql.Rows) error {
		var ref store.Ref
		err := rows.Scan(&ref.Offset, &ref.ID)
		unsettled[ref] = true
		return err
	}, `SELECT "offset", id FROM {log} WHERE ("offset", id) IN (?) AND NOT ? {whole log}`, t.run.Dialect.Refs(refs), t.run.SettledInAny(cursors))
	return unsettled, err
}

// move parks deliveries for all sinks of their types, and returns the sinks that it changed.
func (t *Acts) move(ctx context.Context, tx *sql.Tx, sinks map[string]notification.TypeFilter, moved []unrouted) (changed []string, err error) {
	if len(moved) == 0 {
		return nil, nil
	}
	for sink, types := range sinks {
		refs := refsOf(moved, types)
		if len(refs) == 0 {
			continue
		}
		parked, err := t.parkUnrouted(ctx, tx, sink, refs)
		if err != nil {
			return nil, err
		}
		if parked > 0 {
			changed = append(changed, sink)
		}
	}
	return append(changed, store.SinkUnrouted), t.run.Unpark(ctx, tx, store.SinkUnrouted, refsOf(moved, notification.AllTypes))
}

// parkUnrouted parks deliveries for a sink, except those that it already has.
func (t *Acts) parkUnrouted(ctx context.Context, tx *sql.Tx, sink string, refs []store.Ref) (parked int64, err error) {
	rows := tables.SQL(`{parked} o WHERE sink = ? AND ("offset", id) IN (?) AND NOT ?
			AND NOT EXISTS (SELECT 1 FROM {receipts} r WHERE r.sink = ? AND r."offset" = o."offset" AND r.id = o.id) {whole parked receipts}`,
		store.SinkUnrouted, t.run.Dialect.Refs(refs), isParked(sink), sink)
	return t.run.Exec(ctx, tx, `INSERT INTO {parked} (sink, {envelope}, state, attempt, due_at)
		SELECT ?, {envelope}, CASE WHEN scheduled THEN 'scheduled' WHEN waits THEN 'blocked' ELSE 'retrying' END, 0,
			CASE WHEN scheduled THEN due_at WHEN waits THEN NULL ELSE `+onceNow+` END
		FROM (SELECT {envelope}, due_at, state = 'scheduled' AS scheduled,
				"key" <> '' AND (row_number() OVER (PARTITION BY "key", state = 'scheduled' ORDER BY "offset") > 1 OR held) AS waits
			FROM (SELECT {envelope}, due_at, state, ? AS held FROM ?) o) moved`, sink, keyHeld(sink), rows)
}

// keyHeld is the condition that a row called o has another one of its key parked before it. It must be
// in a separate SELECT below one with a window function: in the same one, MySQL 8.0.31 evaluates it
// as false.
func keyHeld(sink string) tables.Expr {
	return tables.SQL(`EXISTS (SELECT 1 FROM {parked} p WHERE p.sink = ? AND p."key" = o."key" AND p."key" <> '' AND `+tables.Holds("p.", false)+`)`, sink)
}
