package tables

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// pageBytes is where a list of parked deliveries ends even if it has not reached its
// limit, so that large payloads do not add up to gigabytes.
const pageBytes = 8 << 20

// parkedColumns are those that Dialect.EachParked reads.
const parkedColumns = `{selected}, state, attempt, due_at, last_error, first_parked_at, sink, updated_at`

// parked runs a parkedQuery. It stops at limit, or where the payloads
// get too large, and returns the first one behind that as more.
func (t *Tables) parked(ctx context.Context, limit int, selection Expr) (found []store.ParkedDelivery, more *store.ParkedDelivery, err error) {
	size := 0
	query, args := t.run.Render(selection)
	err = t.dialect.EachParked(ctx, query, args, func(d *store.ParkedDelivery) (bool, error) {
		if len(found) == limit || size >= pageBytes {
			more = d
			return false, nil
		}
		found = append(found, *d)
		size += sizeOf(&d.Envelope)
		return true, nil
	})
	return found, more, err
}

// parkedQuery selects parked deliveries, called p.
func parkedQuery(where Expr) Expr {
	return SQL(`SELECT `+parkedColumns+` FROM {parked} p WHERE ? {whole parked}`, where)
}

// Due returns what is due; see store.Deliveries. Where the limit, or the size of the
// payloads, leaves out some that are due, next is when the first of them fell due.
func (t *Tables) Due(ctx context.Context, q store.DueQuery) ([]store.Parked, time.Time, error) {
	due, next, err := t.due(ctx, q)
	if err != nil {
		return nil, time.Time{}, t.failed(err, "parked deliveries of %s/%d", q.Lane.Sink, q.Lane.Number)
	}
	return due, next, nil
}

func (t *Tables) due(ctx context.Context, q store.DueQuery) ([]store.Parked, time.Time, error) {
	found, more, err := t.parked(ctx, q.Limit, t.run.DueQuery(q))
	if err != nil {
		return nil, time.Time{}, err
	}
	due := deliveries(found)
	if more != nil {
		return due, more.DueAt, nil
	}
	next := t.run.time()
	query, args := t.run.Render(t.run.NextDueQuery(q.Lane.Sink, q.Now))
	err = t.db.QueryRowContext(ctx, query, args...).Scan(&next)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return due, next.Time, err
}

func deliveries(found []store.ParkedDelivery) []store.Parked {
	parked := make([]store.Parked, len(found))
	for i := range found {
		parked[i] = found[i].Parked
	}
	return parked
}

// DueQuery finds retrying ones, and scheduled ones whose key has nothing waiting.
func (r *Runner) DueQuery(q store.DueQuery) Expr {
	where := SQL(`sink = ? AND slot BETWEEN ? AND ? AND state IN ('retrying', 'scheduled') AND due_at <= ?`,
		q.Lane.Sink, q.Lane.Slots.First, q.Lane.Slots.Last, r.dialect.Time(q.Now))
	if len(q.Except) > 0 {
		where.and(`("offset", id) NOT IN (?)`, r.dialect.Refs(q.Except))
	}
	where.and(`(state = 'retrying' OR "key" = '' OR NOT EXISTS (
			SELECT 1 FROM {parked} b WHERE b.sink = p.sink AND b."key" = p."key" AND b."key" <> '' AND ` + holds("b.", q.Halt) + `))`)
	where.Text += ` ORDER BY due_at, "offset" LIMIT ?`
	where.Args = append(where.Args, q.Limit+1)
	return parkedQuery(where)
}

// NextDueQuery is about all lanes of the sink: with a condition on slots, and without
// statistics, PostgreSQL sorts all that is parked.
func (r *Runner) NextDueQuery(sink string, now time.Time) Expr {
	return SQL(`SELECT due_at FROM {parked} WHERE sink = ? AND state IN ('retrying', 'scheduled') AND due_at > ?
		ORDER BY due_at, "offset" LIMIT 1 {whole parked}`, sink, r.dialect.Time(now))
}

// Blocked returns what holds back a key; see store.Deliveries.
func (t *Tables) Blocked(ctx context.Context, lane store.Lane, key string, halt bool, limit int) ([]store.Parked, error) {
	found, _, err := t.parked(ctx, limit, t.run.BlockedQuery(lane.Sink, key, halt, limit))
	if err != nil {
		return nil, t.failed(err, "blocked deliveries of %s/%d", lane.Sink, lane.Number)
	}
	return deliveries(found), nil
}

// BlockedQuery goes along the index of keys.
func (*Runner) BlockedQuery(sink, key string, halt bool, limit int) Expr {
	return parkedQuery(SQL(`sink = ? AND "key" = ? AND "key" <> '' AND `+holds("", halt)+` ORDER BY "offset" LIMIT ?`, sink, key, limit))
}

// isHead is 1 for a delivery that heads its key: it will be tried again, or is dead
// and halts the key.
const isHead = `CASE WHEN state <> 'blocked' THEN 1 ELSE 0 END`

// HeldKeys lists the keys that are held back; see store.Deliveries.
func (t *Tables) HeldKeys(ctx context.Context, lane store.Lane, halt bool, after string, limit int) (keys []store.HeldKey, err error) {
	query := t.run.HeldKeysQuery(lane, halt, after, limit)
	err = t.run.Each(ctx, t.db, func(rows *sql.Rows) error {
		var k store.HeldKey
		err := rows.Scan(&k.Key, &k.Head)
		keys = append(keys, k)
		return err
	}, query.Text, query.Args...)
	if err != nil {
		return nil, t.failed(err, "held keys of %s/%d", lane.Sink, lane.Number)
	}
	return keys, nil
}

// HeldKeysQuery goes along the index of keys, and reads no more of it than a page.
func (*Runner) HeldKeysQuery(lane store.Lane, halt bool, after string, limit int) Expr {
	return SQL(`SELECT "key", max(`+isHead+`) FROM {parked}
		WHERE sink = ? AND "key" > ? AND "key" <> '' AND slot BETWEEN ? AND ? AND `+holds("", halt)+`
		GROUP BY "key" ORDER BY "key" LIMIT ? {whole parked}`, lane.Sink, after, lane.Slots.First, lane.Slots.Last, limit)
}

// BlockedKeys counts what holds back each key; see store.Deliveries.
func (t *Tables) BlockedKeys(ctx context.Context, lane store.Lane, halt bool) (map[string]store.BlockedKey, error) {
	keys := make(map[string]store.BlockedKey)
	query := blockedKeys(lane, halt)
	err := t.run.Each(ctx, t.db, func(rows *sql.Rows) error {
		var key string
		var b store.BlockedKey
		err := rows.Scan(&key, &b.Parked, &b.Head, &b.First)
		keys[key] = b
		return err
	}, query.Text, query.Args...)
	if err != nil {
		return nil, t.failed(err, "blocked keys of %s/%d", lane.Sink, lane.Number)
	}
	return keys, nil
}

func blockedKeys(lane store.Lane, halt bool) Expr {
	return SQL(`SELECT "key", count(*), max(`+isHead+`), min("offset") FROM {parked}
		WHERE sink = ? AND slot BETWEEN ? AND ? AND "key" <> '' AND `+holds("", halt)+` GROUP BY "key" {whole parked}`,
		lane.Sink, lane.Slots.First, lane.Slots.Last)
}
