package tables

import (
	"context"
	"database/sql"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// overdueAfter is how long after its time a delivery is overdue.
const overdueAfter = time.Minute

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

func (t *Tables) lookAt(ctx context.Context, l *store.ParkedLook) error {
	err := t.run.Row(ctx, t.db, `SELECT count(*), count(CASE WHEN state = 'dead' THEN 1 END),
			count(DISTINCT CASE WHEN state = 'dead' AND "key" <> '' THEN "key" END),
			count(CASE WHEN hook_failures > 0 THEN 1 END), coalesce(max(hook_error), '')
		FROM (SELECT state, "key", hook_failures, hook_error FROM {parked} WHERE sink = ? ORDER BY "offset" DESC LIMIT ?) looked {whole parked}`,
		l.Sink, store.ParkedLookLimit).Scan(&l.Looked, &l.Dead, &l.DeadKeys, &l.Settling, &l.HookError)
	if err != nil {
		return err
	}
	var longest sql.NullInt64 // in microseconds
	err = t.run.Row(ctx, t.db, `SELECT count(*), max(`+t.dialect.Elapsed(`due_at`)+`)
		FROM (SELECT due_at FROM {parked} WHERE sink = ? AND due_at IS NOT NULL AND due_at < ? ORDER BY due_at LIMIT ?) late {whole parked}`,
		l.Sink, t.dialect.NowPlus(-overdueAfter), store.OverdueLimit).Scan(&l.Overdue, &longest)
	l.LongestDue = time.Duration(longest.Int64) * time.Microsecond
	return err
}
