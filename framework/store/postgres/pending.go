package postgres

import (
	"context"
	"encoding/json"

	"github.com/waybill-go/waybill/framework/store"
)

// pending counts the rows between a position and a target, up to a limit.
func (s *Store) pending(ctx context.Context, raw json.RawMessage, t *probe, filter store.Filter, limit int) (int, error) {
	pos, err := parsePosition(raw)
	if err != nil {
		return 0, err
	}
	if pos.history.differs(t.history) != "" {
		pos = position{base: &origin} // the forwarder will read it from the oldest row
	}
	r := &reader{store: s, filter: filter, pos: pos}
	total := 0
	if r.pos.delta != nil {
		if total, err = r.count(ctx, limit); err != nil {
			return 0, err
		}
		r.pos = position{base: &r.pos.delta.Until}
	}
	if r.begin(t) {
		rest, err := r.count(ctx, limit)
		if err != nil {
			return 0, err
		}
		total += rest
	}
	return min(total, limit), nil
}

// count counts what is left of the reader's delta, up to a limit.
func (r *reader) count(ctx context.Context, limit int) (int, error) {
	d := r.pos.delta
	q := statement{args: []any{r.pos.offset, d.Last}}
	q.WriteString(`SELECT count(*) FROM (SELECT FROM ` + r.store.names.Log() + r.store.sql.between)
	r.where(&q, d)
	q.WriteString(` LIMIT ` + q.arg(limit) + `) pending` + r.store.sql.whole)
	var n int
	err := r.store.db.QueryRowContext(ctx, q.String(), q.args...).Scan(&n)
	return n, err
}
