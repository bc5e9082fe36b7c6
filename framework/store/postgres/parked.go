package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store"
)

// Due returns what is due; see store.Store.
func (s *Store) Due(ctx context.Context, q store.DueQuery) ([]store.Parked, time.Time, error) {
	offsets, ids := split(q.Except)
	var due []store.Parked
	// next may lie among what follows a full page; then the caller asks again.
	var next sql.NullTime
	err := s.parked(ctx, &due, s.dueQuery(q.Halt),
		q.Lane.Sink, q.Lane.Slots.First, q.Lane.Slots.Last, q.Now, pq.Array(offsets), pq.Array(ids), q.Limit)
	if err == nil {
		err = s.db.QueryRowContext(ctx, s.nextDueQuery(), q.Lane.Sink, q.Now).Scan(&next)
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("parked deliveries of %s/%d: %w", q.Lane.Sink, q.Lane.Number, advise(err))
	}
	return due, next.Time, nil
}

// dueQuery finds retrying ones, and scheduled ones whose key has nothing waiting.
func (s *Store) dueQuery(halt bool) string {
	return s.parkedQuery(`WHERE sink = $1 AND slot BETWEEN $2 AND $3 AND state IN ('retrying', 'scheduled')
		AND due_at <= $4 AND NOT EXISTS (
			SELECT FROM unnest($5::bigint[], $6::text[]) AS e("offset", id) WHERE e."offset" = p."offset" AND e.id = p.id)
		AND (state = 'retrying' OR key = '' OR NOT EXISTS (
			SELECT FROM ` + s.sql.prefix + `_parked b
			WHERE b.sink = p.sink AND b.key = p.key AND b.key <> '' AND b.state IN (` + holding(halt) + `)))
		ORDER BY due_at, "offset" LIMIT $7`)
}

// nextDueQuery is about all lanes of the sink: with a condition on slots, and
// without statistics, the planner sorts all that is parked.
func (s *Store) nextDueQuery() string {
	return `SELECT due_at FROM ` + s.sql.prefix + `_parked
		WHERE sink = $1 AND state IN ('retrying', 'scheduled') AND due_at > $2
		ORDER BY due_at, "offset" LIMIT 1`
}

func (s *Store) blockedQuery(halt bool) string {
	return s.parkedQuery(`WHERE sink = $1 AND key = $2 AND key <> '' AND state IN (` + holding(halt) + `) ORDER BY "offset" LIMIT $3`)
}

func (s *Store) blockedKeysQuery(halt bool) string {
	return `SELECT key, count(*), bool_or(state <> 'blocked'), min("offset") FROM ` + s.sql.prefix + `_parked
		WHERE sink = $1 AND slot BETWEEN $2 AND $3 AND key <> '' AND state IN (` + holding(halt) + `)
		GROUP BY key`
}

// parkedColumns are those of a parked delivery, in the order in which scanParked reads
// them.
const parkedColumns = selected + `, state, attempt, due_at, last_error, first_parked_at`

// parkedQuery selects what parked reads.
func (s *Store) parkedQuery(where string) string {
	return `SELECT ` + parkedColumns + ` FROM ` + s.sql.prefix + `_parked p ` + where
}

// holding lists the states in which a delivery holds back its key.
func holding(halt bool) string {
	if halt {
		return `'retrying', 'blocked', 'dead'`
	}
	return `'retrying', 'blocked'`
}

// Blocked returns what holds back a key; see store.Store.
func (s *Store) Blocked(ctx context.Context, lane store.Lane, key string, halt bool, limit int) ([]store.Parked, error) {
	var blocked []store.Parked
	err := s.parked(ctx, &blocked, s.blockedQuery(halt), lane.Sink, key, limit)
	if err != nil {
		return nil, fmt.Errorf("blocked deliveries of %s: %w", lane.Sink, advise(err))
	}
	return blocked, nil
}

// parked runs a parkedQuery.
func (s *Store) parked(ctx context.Context, to *[]store.Parked, query string, args ...any) error {
	envelopes := newScanner(0)
	return stream(ctx, s.db, query, args, func(row []driver.Value) (bool, error) {
		p, _, err := envelopes.scanParked(row)
		if err == nil {
			*to = append(*to, p)
		}
		return envelopes.bytes < pageBytes, err
	})
}

// scanParked reads a row of parkedColumns and returns what is behind them.
func (s *scanner) scanParked(row []driver.Value) (p store.Parked, rest *values, err error) {
	rest, err = s.scan(row)
	if err != nil {
		return p, nil, err
	}
	p = store.Parked{
		Envelope: s.last(), State: store.State(rest.text()), Attempt: int(rest.integer()), DueAt: rest.time(),
		LastError: rest.text(), FirstParkedAt: rest.time(),
	}
	return p, rest, rest.err
}

// BlockedKeys counts what holds back each key; see store.Store.
func (s *Store) BlockedKeys(ctx context.Context, lane store.Lane, halt bool) (_ map[string]store.BlockedKey, err error) {
	rows, err := s.db.QueryContext(ctx, s.blockedKeysQuery(halt), lane.Sink, lane.Slots.First, lane.Slots.Last)
	if err != nil {
		return nil, fmt.Errorf("blocked keys of %s/%d: %w", lane.Sink, lane.Number, advise(err))
	}
	defer func() { err = closeRows(rows, err) }()
	keys := make(map[string]store.BlockedKey)
	for rows.Next() {
		var key string
		var blocked store.BlockedKey
		if err := rows.Scan(&key, &blocked.Parked, &blocked.Head, &blocked.First); err != nil {
			return nil, fmt.Errorf("blocked keys of %s/%d: %w", lane.Sink, lane.Number, err)
		}
		keys[key] = blocked
	}
	return keys, rows.Err()
}
