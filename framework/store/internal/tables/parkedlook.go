package tables

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// LookAtParked takes a bounded look at what is parked, by sink.
func (t *Tables) LookAtParked(ctx context.Context) ([]store.ParkedLook, error) {
	looks, err := t.lookAtParked(ctx)
	if err != nil {
		return nil, t.failed(err, "look at parked deliveries")
	}
	return looks, nil
}

func (t *Tables) lookAtParked(ctx context.Context) (looks []store.ParkedLook, err error) {
	// From name to name by the primary key.
	err = t.run.Each(ctx, t.db, func(rows *sql.Rows) error {
		var l store.ParkedLook
		err := rows.Scan(&l.Sink)
		looks = append(looks, l)
		return err
	}, `WITH RECURSIVE names(sink) AS (
			SELECT min(sink) FROM {parked}
			UNION ALL SELECT (SELECT min(p.sink) FROM {parked} p WHERE p.sink > names.sink) FROM names WHERE names.sink IS NOT NULL)
		SELECT sink FROM names WHERE sink IS NOT NULL {whole parked}`)
	for i := range looks {
		if err == nil {
			err = t.lookAt(ctx, &looks[i])
		}
	}
	return looks, err
}

// lookPage is how many rows one statement of a look reads. By more, a planner that knows nothing of a
// table yet, because it was just filled, would read and sort all of it.
const lookPage = 2_000

func (t *Tables) lookAt(ctx context.Context, l *store.ParkedLook) error {
	last := store.Ref{Offset: math.MaxInt64}
	keys := make(map[string]bool)
	for page := lookPage; page == lookPage && l.Looked < store.ParkedLookLimit; l.Looked += page {
		page = 0
		err := t.run.Each(ctx, t.db, func(rows *sql.Rows) error {
			var state store.State
			var key, hookError string
			var failures int
			if err := rows.Scan(&last.Offset, &last.ID, &state, &key, &failures, &hookError); err != nil {
				return err
			}
			page++
			if state == store.StateDead {
				l.Dead++
				if key != "" {
					keys[key] = true
				}
			}
			if failures > 0 {
				l.Settling++
				l.HookError = hookError
			}
			return nil
		}, `SELECT "offset", id, state, "key", hook_failures, hook_error FROM {parked}
			WHERE sink = ? AND ("offset", id) < (?, ?) ORDER BY "offset" DESC, id DESC LIMIT ? {whole parked}`, l.Sink, last.Offset, last.ID, lookPage)
		if err != nil {
			return err
		}
	}
	l.DeadKeys = len(keys)
	var longest sql.NullInt64 // in microseconds
	err := t.run.Row(ctx, t.db, `SELECT count(*), max(`+t.dialect.Elapsed(`due_at`)+`)
		FROM (SELECT due_at FROM {parked} WHERE sink = ? AND due_at IS NOT NULL AND due_at < ? ORDER BY due_at LIMIT ?) late {whole parked}`,
		l.Sink, t.dialect.NowPlus(-overdueAfter), store.OverdueLimit).Scan(&l.Overdue, &longest)
	l.LongestDue = time.Duration(longest.Int64) * time.Microsecond
	return err
}
