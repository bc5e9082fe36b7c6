package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

var _ store.Pruner = (*Store)(nil)

// old is the condition that a time, which may be in any form that the log takes,
// is longer ago than a number of days, which is the argument behind it.
func old(column string) string { return `julianday(` + column + `) < julianday('now') - ?` }

func days(age time.Duration) float64 { return age.Hours() / 24 }

// Prune removes old rows; see store.Pruner. It looks first, and takes the
// write lock only where there is something to remove.
func (s *Store) Prune(ctx context.Context, e store.Pruning) (store.Pruned, error) {
	expired := store.Pruned{Through: e.After}
	through, err := s.settledByAll(ctx, s.db, e.Sinks)
	if err == nil && through > e.After {
		removable := 0
		err = s.db.QueryRowContext(ctx, `SELECT count(*), coalesce(max("offset"), ?), count(*) FILTER (WHERE old)
			FROM (SELECT "offset", `+old("occurred_on")+` AS old FROM `+s.prefix+` WHERE "offset" > ? AND "offset" <= ? ORDER BY "offset" LIMIT ?)`,
			e.After, days(e.Age), e.After, through, e.Limit).Scan(&expired.Looked, &expired.Through, &removable)
		if err == nil && removable > 0 {
			expired.Removed, err = s.remove(ctx, e, expired.Through)
		}
	}
	if err != nil {
		return store.Pruned{}, fmt.Errorf("remove old rows of the log: %w", err)
	}
	return expired, nil
}

// remove deletes the old rows of a range, if it still is settled. Its first
// statement writes, so also a handle whose transactions begin deferred waits
// for the write lock with nothing read.
func (s *Store) remove(ctx context.Context, e store.Pruning, through int64) (int, error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // of no effect behind the commit
	result, err := tx.ExecContext(ctx, `DELETE FROM `+s.prefix+` WHERE "offset" > ? AND "offset" <= ? AND `+old("occurred_on"), e.After, through, days(e.Age))
	if err != nil {
		return 0, err
	}
	if now, err := s.settledByAll(ctx, tx, e.Sinks); err != nil || now < through {
		return 0, err // a cursor was set back, or a new one came
	}
	removed, err := result.RowsAffected()
	if err != nil {
		return 0, err
	}
	return int(removed), tx.Commit()
}

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// keeper is what one sink has settled.
type keeper struct {
	sink    string
	through int64  // it has settled all rows up to here
	reason  string // why it keeps everything; "" if it does not
}

// settledByAll is an offset up to which all sinks have settled every row; 0 without any
// sink, since nobody can tell then.
func (s *Store) settledByAll(ctx context.Context, q querier, sinks []string) (int64, error) {
	keepers, err := s.keepers(ctx, q, sinks)
	if err != nil || len(keepers) == 0 {
		return 0, err
	}
	through := keepers[0].through
	for _, k := range keepers {
		if k.reason != "" {
			return 0, nil
		}
		through = min(through, k.through)
	}
	return through, nil
}

// keepers are the sinks that have cursors, and those that are named.
func (s *Store) keepers(ctx context.Context, q querier, sinks []string) (_ []keeper, err error) {
	last, err := s.last(ctx, q)
	if err != nil {
		return nil, err
	}
	rows, err := q.QueryContext(ctx,
		`SELECT sink, lanes, position, (SELECT count(*) FROM `+s.prefix+`_cursors same WHERE same.sink = c.sink AND same.lanes = c.lanes)
		FROM `+s.prefix+`_cursors c WHERE sink <> ? ORDER BY sink, lane`, store.SinkPruner)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	var all []keeper
	for rows.Next() {
		var sink string
		var lanes, there int
		var raw sql.NullString
		if err := rows.Scan(&sink, &lanes, &raw, &there); err != nil {
			return nil, err
		}
		if n := len(all); n == 0 || all[n-1].sink != sink {
			all = append(all, keeper{sink: sink, through: math.MaxInt64})
		}
		k := &all[len(all)-1]
		pos, err := parsePosition([]byte(raw.String))
		switch {
		case err != nil:
			k.reason = err.Error()
		case there != lanes:
			k.reason = fmt.Sprintf("%d of its %d lanes have a cursor", there, lanes)
		case int64(pos) > last:
			k.reason = fmt.Sprintf("its cursor is behind offset %d and the log ends at %d: the log began anew", pos, last)
		}
		k.through = min(k.through, int64(pos))
	}
	for _, sink := range sinks {
		if !slices.ContainsFunc(all, func(k keeper) bool { return k.sink == sink }) {
			all = append(all, keeper{sink: sink, reason: "it has no cursor yet"})
		}
	}
	return all, rows.Err()
}

// Holders tells who keeps rows in the log; see store.Pruner.
func (s *Store) Holders(ctx context.Context, sinks []string) ([]store.Holder, error) {
	keepers, err := s.keepers(ctx, s.db, sinks)
	if err != nil {
		return nil, fmt.Errorf("look for who keeps the log: %w", err)
	}
	var holders []store.Holder
	for _, k := range keepers {
		if k.reason != "" {
			k.through = 0
		}
		row, err := s.oldest(ctx, k.through)
		if err != nil {
			return nil, fmt.Errorf("look for who keeps the log: %w", err)
		}
		if row != nil {
			holders = append(holders, store.Holder{Sink: k.sink, Row: *row, Reason: k.reason})
		}
	}
	return holders, nil
}

// oldest is the first row behind an offset; nil if there is none.
func (s *Store) oldest(ctx context.Context, after int64) (*store.Row, error) {
	var r store.Row
	var occurredOn string
	err := s.db.QueryRowContext(ctx, `SELECT "offset", occurred_on FROM `+s.prefix+` WHERE "offset" > ? ORDER BY "offset" LIMIT 1`, after).
		Scan(&r.Offset, &occurredOn)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err == nil {
		r.OccurredOn, err = parseTime(occurredOn)
	}
	return &r, err
}

// PruneReceipts removes old receipts; see store.Pruner. Their times are the
// store's own, which sort.
func (s *Store) PruneReceipts(ctx context.Context, age time.Duration, limit int) (int, error) {
	result, err := s.db.ExecContext(ctx, `DELETE FROM `+s.prefix+`_receipts WHERE rowid IN (
		SELECT rowid FROM `+s.prefix+`_receipts WHERE delivered_at < `+nowPlus+` ORDER BY delivered_at LIMIT ?)`,
		-milliseconds(age), limit)
	if err != nil {
		return 0, fmt.Errorf("remove old receipts: %w", err)
	}
	removed, err := result.RowsAffected()
	return int(removed), err
}
