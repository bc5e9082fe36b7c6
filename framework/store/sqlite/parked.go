package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// Due returns what is due; see store.Store. Where the limit, or the size of the
// payloads, leaves out some that are due, next is when the first of them fell due.
func (s *Store) Due(ctx context.Context, q store.DueQuery) ([]store.Parked, time.Time, error) {
	due, next, err := s.due(ctx, q)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("parked deliveries of %s/%d: %w", q.Lane.Sink, q.Lane.Number, err)
	}
	return due, next, nil
}

func (s *Store) due(ctx context.Context, q store.DueQuery) (due []store.Parked, next time.Time, err error) {
	except, err := jsonArray(pairs(q.Except))
	if err != nil {
		return nil, next, err
	}
	due, more, err := s.parked(ctx, q.Limit, s.dueQuery(q.Halt),
		q.Lane.Sink, q.Lane.Slots.First, q.Lane.Slots.Last, formatTime(q.Now), except, q.Limit+1)
	if err != nil {
		return nil, next, err
	}
	if more != nil {
		return due, more.DueAt, nil
	}
	var text sql.NullString
	err = s.db.QueryRowContext(ctx, s.nextDueQuery(), q.Lane.Sink, formatTime(q.Now)).Scan(&text)
	if err != nil {
		return nil, next, err
	}
	next, err = parseNullTime(text)
	return due, next, err
}

// dueQuery finds retrying ones, and scheduled ones whose key has nothing waiting.
func (s *Store) dueQuery(halt bool) string {
	return s.parkedQuery(`WHERE sink = ? AND slot BETWEEN ? AND ? AND state IN ('retrying', 'scheduled')
		AND due_at <= ? AND ("offset", id) NOT IN (` + eachPair + `)
		AND (state = 'retrying' OR key = '' OR NOT EXISTS (
			SELECT 1 FROM ` + s.prefix + `_parked b
			WHERE b.sink = p.sink AND b.key = p.key AND b.key <> '' AND b.state IN (` + holding(halt) + `) AND b.` + keyed + `))
		ORDER BY due_at, "offset" LIMIT ?`)
}

// keyed is the condition of the index of keys, which SQLite wants word for word.
const keyed = `state IN ('retrying', 'blocked', 'dead')`

// holding lists the states in which a delivery holds back its key.
func holding(halt bool) string {
	if halt {
		return `'retrying', 'blocked', 'dead'`
	}
	return `'retrying', 'blocked'`
}

func (s *Store) nextDueQuery() string {
	return `SELECT min(due_at) FROM ` + s.prefix + `_parked
		WHERE sink = ? AND state IN ('retrying', 'scheduled') AND due_at > ?`
}

// Blocked returns what holds back a key; see store.Store.
func (s *Store) Blocked(ctx context.Context, lane store.Lane, key string, halt bool, limit int) ([]store.Parked, error) {
	blocked, _, err := s.parked(ctx, limit, s.blockedQuery(halt), lane.Sink, key, limit)
	if err != nil {
		return nil, fmt.Errorf("blocked deliveries of %s/%d: %w", lane.Sink, lane.Number, err)
	}
	return blocked, nil
}

func (s *Store) blockedQuery(halt bool) string {
	return s.parkedQuery(`WHERE sink = ? AND key = ? AND key <> '' AND state IN (` + holding(halt) + `) AND ` + keyed + ` ORDER BY "offset" LIMIT ?`)
}

// BlockedKeys tells what holds back each key; see store.Store.
func (s *Store) BlockedKeys(ctx context.Context, lane store.Lane, halt bool) (map[string]store.BlockedKey, error) {
	keys, err := s.blockedKeys(ctx, lane, halt)
	if err != nil {
		return nil, fmt.Errorf("blocked keys of %s/%d: %w", lane.Sink, lane.Number, err)
	}
	return keys, nil
}

func (s *Store) blockedKeys(ctx context.Context, lane store.Lane, halt bool) (_ map[string]store.BlockedKey, err error) {
	rows, err := s.db.QueryContext(ctx, s.blockedKeysQuery(halt), lane.Sink, lane.Slots.First, lane.Slots.Last)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	keys := make(map[string]store.BlockedKey)
	for rows.Next() {
		var key string
		var blocked store.BlockedKey
		if err := rows.Scan(&key, &blocked.Parked, &blocked.Head, &blocked.First); err != nil {
			return nil, err
		}
		keys[key] = blocked
	}
	return keys, rows.Err()
}

func (s *Store) blockedKeysQuery(halt bool) string {
	return `SELECT key, count(*), max(state <> 'blocked'), min("offset") FROM ` + s.prefix + `_parked
		WHERE sink = ? AND slot BETWEEN ? AND ? AND key <> '' AND state IN (` + holding(halt) + `) AND ` + keyed + `
		GROUP BY key`
}

// parkedQuery selects what scanParked reads.
func (s *Store) parkedQuery(where string) string {
	return `SELECT ` + columns + `, state, attempt, due_at, last_error, first_parked_at FROM ` + s.prefix + `_parked p ` + where
}

// parked runs a query over the parked deliveries. It stops at limit, or where
// the payloads get too large, and gives the first one behind that as more.
func (s *Store) parked(ctx context.Context, limit int, query string, args ...any) (found []store.Parked, more *store.Parked, err error) {
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = closeRows(rows, err) }()

	var envelopes scanner
	for rows.Next() {
		full := envelopes.full() || len(found) == limit
		p, err := scanParked(&envelopes, rows)
		if err != nil {
			return nil, nil, err
		}
		if full {
			return found, &p, nil
		}
		found = append(found, p)
	}
	return found, nil, rows.Err()
}

// scanParked reads one row, whose further columns go to extra.
func scanParked(envelopes *scanner, rows *sql.Rows, extra ...any) (p store.Parked, err error) {
	var dueAt sql.NullString
	var firstParkedAt string
	if p.Envelope, err = envelopes.scan(rows, append([]any{&p.State, &p.Attempt, &dueAt, &p.LastError, &firstParkedAt}, extra...)...); err != nil {
		return p, err
	}
	if p.DueAt, err = parseNullTime(dueAt); err != nil {
		return p, fmt.Errorf("offset %d: due_at: %w", p.Envelope.Offset, err)
	}
	if p.FirstParkedAt, err = parseTime(firstParkedAt); err != nil {
		return p, fmt.Errorf("offset %d: first_parked_at: %w", p.Envelope.Offset, err)
	}
	return p, nil
}
