package looks

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/store/internal/tables"

	"github.com/waybill-go/waybill/framework/store"
)

// overdueAfter is how long after its time a parked delivery counts as overdue: usually it is
// delivered within seconds.
const overdueAfter = time.Minute

// ParkedFigures counts parked deliveries; see store.Inspector. It goes from sink to sink by the
// primary key, so its cost does not depend on how many there are.
func (t *Looks) ParkedFigures(ctx context.Context) (all []store.ParkedFigures, err error) {
	for sink := ""; ; {
		var next sql.NullString
		if err := t.run.Row(ctx, t.run.DB, `SELECT min(sink) FROM {parked} WHERE sink > ? {whole parked}`, sink).Scan(&next); err != nil {
			return nil, t.run.Failed(err, "count parked deliveries")
		}
		if !next.Valid {
			return all, nil
		}
		sink = next.String
		figures, err := t.parkedFigures(ctx, sink)
		if err != nil {
			return nil, t.run.Failed(err, "count parked deliveries")
		}
		all = append(all, figures)
	}
}

// storedStates are the states that are written.
var storedStates = []store.State{store.StateRetrying, store.StateScheduled, store.StateBlocked, store.StateDead, store.StateSettling, store.StateQuiet, store.StateCollecting}

// Rows of a ParkedFiguresQuery other than those of the states.
const (
	figureOverdue = "overdue"
	figureKeys    = "keys"
	figureHooks   = "hooks"
	figureGroups  = "groups"
)

// maxFigureError bounds an error among figures, in bytes.
const maxFigureError = 300

// ParkedFiguresQuery is one statement about one sink. Each part is a range of an index that ends at
// the limit. What waited for the hours of a sink is due with all that came in a night, and is not overdue; nor is a
// collection. The ORDER BY makes a planner use the index: otherwise it would read the table until it has found enough
// rows, which may all be after a million in another state.
func ParkedFiguresQuery(r *tables.Runner, sink string) tables.Expr {
	parts := []tables.Expr{ // the first one defines the types of the columns
		tables.SQL(`SELECT '`+figureOverdue+`' AS what, count(*) AS n, min(due_at) AS oldest, '' AS hook_error, '' AS last_error, '' AS last_type, max(`+r.Dialect.Elapsed(`due_at`)+`) AS longest
			FROM (SELECT due_at FROM {parked} WHERE sink = ? AND due_at < (SELECT ?) AND state <> 'quiet' AND (state <> 'collecting' OR attempt > 0) ORDER BY due_at {limit} ?) few`,
			sink, r.Dialect.NowPlus(-overdueAfter), store.ParkedLimit),
		tables.SQL(`SELECT '`+figureKeys+`', (SELECT count(DISTINCT "key") FROM (SELECT "key" FROM {parked} WHERE sink = ? AND state = ? AND "key" <> '' ORDER BY first_parked_at {limit} ?) few), NULL, '', '', '', NULL`,
			sink, string(store.StateDead), store.ParkedLimit),
		tables.SQL(`SELECT '`+figureHooks+`', count(*), NULL, coalesce(max(hook_error), ''), '', '', NULL
			FROM (SELECT hook_error FROM {parked} WHERE sink = ? AND hook_failures > 0 {limit} ?) few`, sink, store.ParkedLimit),
		tables.SQL(`SELECT '`+figureGroups+`', (SELECT count(*) FROM (SELECT 1 FROM {collections} WHERE sink = ? {limit} ?) few), NULL, '', '', '', NULL`, sink, store.ParkedLimit),
		tables.SQL(`SELECT '`+string(store.StateCancelled)+`', count(*), NULL, '', '', '', NULL
			FROM (SELECT `+tables.PresentState+` AS present FROM {parked} p WHERE p.sink = ? AND p.state = ? ORDER BY p.first_parked_at {limit} ?) few WHERE present = ?`,
			sink, string(store.StateScheduled), store.ParkedLimit, string(store.StateCancelled)),
	}
	for _, state := range storedStates {
		failure := tables.SQL(`'', ''`)
		if state == store.StateDead || state == store.StateRetrying {
			const last = `coalesce((SELECT %s FROM {parked} WHERE sink = ? AND state = ? ORDER BY first_parked_at DESC LIMIT 1), '')`
			failure = tables.SQL(fmt.Sprintf(last, `last_error`)+`, `+fmt.Sprintf(last, `type`), sink, string(state), sink, string(state))
		}
		parts = append(parts, tables.SQL(`SELECT '`+string(state)+`',
			(SELECT count(*) FROM (SELECT 1 FROM {parked} WHERE sink = ? AND state = ? ORDER BY first_parked_at {limit} ?) few),
			(SELECT first_parked_at FROM {parked} WHERE sink = ? AND state = ? ORDER BY first_parked_at LIMIT 1),
			coalesce((SELECT hook_error FROM {parked} WHERE sink = ? AND state = ? AND hook_failures > 0 LIMIT 1), ''), ?, NULL`,
			sink, string(state), store.ParkedLimit, sink, string(state), sink, string(state), failure))
	}
	return tables.SQL(`SELECT what, n, oldest, hook_error, last_error, last_type, longest FROM (?) counted {whole parked collections}`, tables.Join(` UNION ALL `, parts))
}

func (t *Looks) parkedFigures(ctx context.Context, sink string) (f store.ParkedFigures, err error) {
	f.Sink = sink
	cancelled := 0
	err = t.run.Each(ctx, t.run.DB, func(rows *sql.Rows) error {
		var what, hookError, lastError, lastType string
		var n int
		var oldest time.Time
		var longest sql.NullInt64 // in microseconds
		if err := rows.Scan(&what, &n, t.run.Into(&oldest), &hookError, &lastError, &lastType, &longest); err != nil {
			return err
		}
		switch what {
		case figureOverdue:
			f.Overdue, f.LongestDue = n, time.Duration(longest.Int64)*time.Microsecond
		case figureKeys:
			f.DeadKeys = n
		case figureGroups:
			f.Collections = n
		case figureHooks:
			f.Hooks, f.HookError = n, hookError
		case string(store.StateCancelled):
			cancelled = n
		default:
			f.States = append(f.States, store.ParkedState{State: store.State(what), Count: n, Oldest: oldest, HookError: hookError, LastError: store.CutText(lastError, maxFigureError), LastType: lastType})
		}
		return nil
	}, `?`, ParkedFiguresQuery(t.run, sink))
	for i := range f.States {
		if f.States[i].State == store.StateScheduled {
			f.States[i].Count -= min(cancelled, f.States[i].Count) // their stored state is scheduled
		}
	}
	f.States = append(f.States, store.ParkedState{State: store.StateCancelled, Count: cancelled})
	return f, err
}
