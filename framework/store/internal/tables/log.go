package tables

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Where a search by time begins: publishers' clocks differ, and several rows show better than one
// when a part of the log was written.
const (
	ClockSkew  = time.Minute
	sampleRows = 20
)

// Payload returns the parameter for a payload: bytes for a column that takes any, otherwise JSON as text.
func Payload(payload []byte, binary bool) any {
	switch {
	case !binary:
		return string(payload)
	case payload == nil:
		return []byte{} // nil would be NULL
	}
	return payload
}

// Oldest returns the first row of the log after an offset, or nil.
func (r *Runner) Oldest(ctx context.Context, q Querier, after int64) (*store.Row, error) {
	return r.ScanRow(r.Row(ctx, q, `SELECT "offset", occurred_on FROM {log} WHERE "offset" > ? ORDER BY "offset" LIMIT 1 {whole log}`, after))
}

// ScanRow reads the columns "offset" and occurred_on; nil if there is no row.
func (r *Runner) ScanRow(row *sql.Row) (*store.Row, error) {
	var first store.Row
	switch err := row.Scan(&first.Offset, r.Into(&first.OccurredOn)); {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &first, nil
}

// LastOffset returns the highest offset of a row in the log, or 0.
func (r *Runner) LastOffset(ctx context.Context) (last int64, err error) {
	err = r.Row(ctx, r.DB, `SELECT coalesce(max("offset"), 0) FROM {log} {whole log}`).Scan(&last)
	return last, err
}

// WrittenSince returns roughly the first offset of rows written at a time or later: the times of
// rows mostly increase with their offsets.
func (r *Runner) WrittenSince(ctx context.Context, since time.Time, low, high int64) (int64, error) {
	for low < high {
		middle := low + (high-low)/2
		at, next, err := r.writtenAt(ctx, middle)
		if err != nil {
			return 0, err
		}
		if next == 0 || !at.Before(since) {
			high = middle
		} else {
			low = max(middle, next) + 1
		}
	}
	return min(low, high), nil
}

// writtenAt returns roughly when the first row from an offset on was written, and its offset, or 0 if
// there is none. It takes the latest time of this row and some after it: an imported row may have
// occurred long ago, while its id, a UUIDv7, was made when it was written.
func (r *Runner) writtenAt(ctx context.Context, from int64) (at time.Time, offset int64, err error) {
	err = r.Each(ctx, r.DB, func(rows *sql.Rows) error {
		var id string
		var this int64
		var occurredOn time.Time
		if err := rows.Scan(&this, &id, r.Into(&occurredOn)); err != nil {
			return err
		}
		if offset == 0 {
			offset = this
		}
		for _, candidate := range []time.Time{occurredOn, notification.IDTime(id)} {
			if candidate.After(at) {
				at = candidate
			}
		}
		return nil
	}, `SELECT "offset", id, occurred_on FROM {log} WHERE "offset" >= ? ORDER BY "offset" {limit} ? {whole log}`, from, sampleRows)
	return at, offset, err
}

// WrittenUntil returns roughly the last offset of rows written before a time. writtenSince may be
// too low by as many rows as it examines together, which are added.
func (r *Runner) WrittenUntil(ctx context.Context, until time.Time, low, high int64) (last int64, err error) {
	since, err := r.WrittenSince(ctx, until, low, high)
	if err != nil {
		return 0, err
	}
	err = r.Row(ctx, r.DB, `SELECT coalesce(max("offset"), ?) FROM (SELECT "offset" FROM {log} WHERE "offset" >= ? ORDER BY "offset" {limit} ?) few {whole log}`,
		since, since, sampleRows).Scan(&last)
	return last, err
}
