package postgres

import "context"

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
