package tables

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// PageBytes is the size at which a list of parked deliveries ends before it has reached its limit,
// so that large payloads do not add up to gigabytes.
const PageBytes = 8 << 20

// ParkedColumns are the columns that Dialect.EachParked reads, of a parked delivery called p.
const ParkedColumns = `{selected}, ` + PresentState + `, attempt, due_at, last_error, coalesce(attempts, ''), receipt, hook_error, hook_failures, first_parked_at, collect_group, collection, sink, updated_at`

// Parked runs a parkedQuery. It stops at limit, or when the payloads get too large, and returns the
// next one as more.
func (r *Runner) Parked(ctx context.Context, db *sql.DB, limit int, selection Expr) (found []store.ParkedDelivery, more *store.ParkedDelivery, err error) {
	size := 0
	query, args := r.Render(selection)
	err = r.Dialect.EachParked(ctx, db, query, args, func(d *store.ParkedDelivery) (bool, error) {
		if len(found) == limit || size >= PageBytes {
			more = d
			return false, nil
		}
		found = append(found, *d)
		size += store.Size(&d.Envelope)
		return true, nil
	})
	return found, more, err
}

// ParkedQuery selects parked deliveries, called p.
func ParkedQuery(where Expr) Expr {
	return SQL(`SELECT `+ParkedColumns+` FROM {parked} p WHERE ? {whole parked}`, where)
}

// Due returns due deliveries; see store.Deliveries. If the limit or the size of the payloads leaves
// out some, next is when the first of those became due.
func (t *Tables) Due(ctx context.Context, q store.DueQuery) (due []store.Parked, next time.Time, err error) {
	defer t.run.Tried(&err, "parked deliveries of %s/%d", q.Lane.Sink, q.Lane.Number)
	found, more, err := t.run.Parked(ctx, t.run.Own(), q.Limit, t.run.DueQuery(q))
	if err != nil {
		return nil, time.Time{}, err
	}
	due = deliveries(found)
	if more != nil {
		return due, more.DueAt, nil
	}
	query, args := t.run.Render(t.run.NextDueQuery(q.Lane.Sink, q.Now))
	err = t.run.Own().QueryRowContext(ctx, query, args...).Scan(t.run.Into(&next))
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return due, next, err
}

func deliveries(found []store.ParkedDelivery) []store.Parked {
	parked := make([]store.Parked, len(found))
	for i := range found {
		parked[i] = found[i].Parked
	}
	return parked
}

// DueQuery finds due deliveries; of the scheduled ones, those whose key has nothing waiting.
func (r *Runner) DueQuery(q store.DueQuery) Expr {
	where := SQL(`sink = ? AND slot BETWEEN ? AND ? AND state <> 'blocked' AND due_at <= ?`,
		q.Lane.Sink, q.Lane.Slots.First, q.Lane.Slots.Last, r.Dialect.BindTime(q.Now))
	where.And(`(state <> 'scheduled' OR "key" = '' OR NOT EXISTS (
			SELECT 1 FROM {parked} b WHERE b.sink = p.sink AND b."key" = p."key" AND b."key" <> '' AND ` + Holds("b.", q.Halt) + `))`)
	if len(q.Except) > 0 {
		where.And(`("offset", id) NOT IN (?)`, r.Dialect.Refs(q.Except))
	}
	where.Text += ` ORDER BY due_at, "offset" {limit} ?`
	where.Args = append(where.Args, q.Limit+1)
	return ParkedQuery(where)
}

// NextDueQuery covers all lanes of the sink: with a condition on slots, and without statistics,
// PostgreSQL would sort all parked deliveries.
func (r *Runner) NextDueQuery(sink string, now time.Time) Expr {
	return SQL(`SELECT due_at FROM {parked} WHERE sink = ? AND state <> 'blocked' AND due_at > ?
		ORDER BY due_at, "offset" LIMIT 1 {whole parked}`, sink, r.Dialect.BindTime(now))
}

// Followers returns what holds back keys; see store.Deliveries. It is one statement, if the database
// supports that for many keys.
func (t *Tables) Followers(ctx context.Context, lane store.Lane, keys []string, halt bool, limit int) (parked []store.Parked, answered int, err error) {
	statement := 1 // number of keys in a statement
	if t.run.Dialect.Asked(keys).Text != "" {
		statement = max(1, len(keys))
	}
	size := 0
	for part := range slices.Chunk(keys, statement) {
		found, more, err := t.run.Parked(ctx, t.run.Own(), limit*len(part), t.run.FollowersQuery(lane.Sink, part, halt, limit))
		if err != nil {
			return nil, 0, t.run.Failed(err, "followers in %s/%d", lane.Sink, lane.Number)
		}
		n := len(part)
		if more != nil {
			n = max(1, slices.Index(part, more.Envelope.Key))
			found = slices.DeleteFunc(found, func(d store.ParkedDelivery) bool { return !slices.Contains(part[:n], d.Envelope.Key) })
		}
		for i := range found {
			size += store.Size(&found[i].Envelope)
		}
		parked, answered = append(parked, deliveries(found)...), answered+n
		if more != nil || size >= PageBytes {
			break
		}
	}
	return parked, answered, nil
}

// FollowersQuery uses the index of keys, once for each key. Only databases that can list keys take
// several.
func (r *Runner) FollowersQuery(sink string, keys []string, halt bool, limit int) Expr {
	const first = `sink = ? AND "key" = ? AND "key" <> '' AND `
	asked := r.Dialect.Asked(keys)
	if asked.Text == "" {
		return ParkedQuery(SQL(first+Holds("", halt)+` ORDER BY "offset" {limit} ?`, sink, keys[0], limit))
	}
	return SQL(`SELECT `+ParkedColumns+` FROM ? AS asked (name, place)
		CROSS JOIN LATERAL (SELECT * FROM {parked} WHERE `+first+Holds("", halt)+` ORDER BY "offset" {limit} ?) p
		ORDER BY place, "offset" {whole parked}`, asked, sink, SQL(`asked.name`), limit)
}

// isHead is 1 for a delivery that is the head of its key: it will be tried again, or is dead and
// halts the key.
const isHead = `CASE WHEN state <> 'blocked' THEN 1 ELSE 0 END`

// HeldKeys returns the keys that are held back; see store.Deliveries.
func (t *Tables) HeldKeys(ctx context.Context, lane store.Lane, halt bool, after string, limit int) (keys []store.HeldKey, err error) {
	defer t.run.Tried(&err, "held keys of %s/%d", lane.Sink, lane.Number)
	query := t.run.HeldKeysQuery(lane, halt, after, limit)
	return List(ctx, t.run, t.run.Own(), func(rows *sql.Rows, k *store.HeldKey) error { return rows.Scan(&k.Key, &k.Head) }, query.Text, query.Args...)
}

// HeldKeysQuery uses the index of keys, and reads no more of it than a page.
func (*Runner) HeldKeysQuery(lane store.Lane, halt bool, after string, limit int) Expr {
	return SQL(`SELECT "key", max(`+isHead+`) FROM {parked}
		WHERE sink = ? AND "key" > ? AND "key" <> '' AND slot BETWEEN ? AND ? AND `+Holds("", halt)+`
		GROUP BY "key" ORDER BY "key" {limit} ? {whole parked}`, lane.Sink, after, lane.Slots.First, lane.Slots.Last, limit)
}
