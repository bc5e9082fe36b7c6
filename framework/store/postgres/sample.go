package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// Waiting counts what a reader would read, and finds the oldest of it.
func (d *dialect) Waiting(ctx context.Context, raw json.RawMessage, target store.Target, filter store.Filter, limit int) (n int, oldest time.Time, err error) {
	t := target.(*probe)
	pos, err := parsePosition(raw)
	if err != nil {
		return 0, oldest, err
	}
	if pos.history.differs(t.history) != "" {
		pos = position{base: &origin} // the forwarder will read it from the oldest row
	}
	r := &reader{store: d.Store, filter: filter, pos: pos}
	if r.pos.delta != nil {
		if n, oldest, err = r.waiting(ctx, limit); err != nil {
			return 0, oldest, err
		}
		r.pos = position{base: &r.pos.delta.Until}
	}
	if n < limit && r.begin(t) {
		more, oldestOfMore, err := r.waiting(ctx, limit-n)
		if err != nil {
			return 0, oldest, err
		}
		if more > 0 && (n == 0 || oldestOfMore.Before(oldest)) {
			oldest = oldestOfMore
		}
		n += more
	}
	return n, oldest, nil
}

// waiting counts what is left of the reader's delta, up to a limit, and returns when the oldest
// of it occurred.
func (r *reader) waiting(ctx context.Context, limit int) (n int, oldest time.Time, err error) {
	d := r.pos.delta
	q := statement{args: []any{r.pos.offset, d.Last}}
	q.WriteString(`SELECT count(*), min(occurred_on) FROM (SELECT occurred_on FROM ` + r.store.names.Log() + r.store.sql.between)
	r.where(&q, d)
	q.WriteString(` LIMIT ` + q.arg(limit) + `) waiting` + r.store.sql.whole)
	var first sql.NullTime
	err = r.store.db.QueryRowContext(ctx, q.String(), q.args...).Scan(&n, &first)
	return n, first.Time, err
}

// Extent asks for the log with its partitions. A transaction that has written to the log has a
// lock on it until it ends; when it began is hidden from roles without pg_read_all_stats, but
// for their own.
func (d *dialect) Extent(ctx context.Context) (bytes int64, held time.Duration, err error) {
	log := d.names.Literal("")
	var microseconds int64
	err = d.db.QueryRowContext(ctx, `WITH parts AS MATERIALIZED (
			SELECT `+log+`::regclass::oid AS relid UNION SELECT relid::oid FROM pg_partition_tree(`+log+`))
		SELECT (SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint FROM parts),
			coalesce((SELECT (extract(epoch FROM max(clock_timestamp() - a.xact_start)) * 1000000)::bigint
				FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
				WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.relation IN (SELECT relid FROM parts)
				AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())), 0)`).Scan(&bytes, &microseconds)
	return bytes, time.Duration(microseconds) * time.Microsecond, err
}
