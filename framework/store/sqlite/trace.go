package sqlite

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// traceSpan is how many offsets one query for an id looks through.
const traceSpan = 200_000

// Trace gathers what there is of a notification; see store.Tracer.
func (s *Store) Trace(ctx context.Context, id string) (store.Trace, error) {
	trace, err := s.trace(ctx, id)
	if err != nil {
		return store.Trace{}, fmt.Errorf("look for notification %s: %w", id, err)
	}
	return trace, nil
}

func (s *Store) trace(ctx context.Context, id string) (trace store.Trace, err error) {
	// A delivery goes from the log to the parked table or the receipts, never back:
	// looking in this order finds it in one of them.
	all, err := s.stands(ctx, s.db, "")
	if err != nil {
		return trace, err
	}
	if trace.Oldest, err = s.oldest(ctx, 0); err != nil {
		return trace, err
	}
	if trace.Oldest != nil {
		if err := s.traceLog(ctx, id, all, &trace); err != nil {
			return trace, err
		}
	}
	if trace.Parked, err = s.findParked(ctx, store.ParkedFilter{ID: id}, store.ParkedPlace{}, 1000); err != nil {
		return trace, err
	}
	trace.Receipts, err = s.receiptsOf(ctx, id)
	return trace, err
}

// traceLog looks for the rows from the end of the log on.
func (s *Store) traceLog(ctx context.Context, id string, all []stand, trace *store.Trace) error {
	end, err := s.last(ctx, s.db)
	if err != nil {
		return err
	}
	for last := end; last >= trace.Oldest.Offset && len(trace.Rows) == 0; last -= traceSpan {
		if err := s.tracePage(ctx, id, last, trace); err != nil {
			return err
		}
	}
	for i := range trace.Rows {
		r := &trace.Rows[i]
		for j := range all {
			st := &all[j]
			l := store.TracedLane{Lane: st.lane, Owner: st.owner, Paused: st.paused, OtherLog: int64(st.pos) > end}
			l.Settled = !l.OtherLog && st.settles(r.Envelope.Offset)
			if !l.OtherLog && !l.Settled {
				if l.Before, err = s.countBefore(ctx, r.Envelope.Offset, st); err != nil {
					return err
				}
			}
			r.Lanes = append(r.Lanes, l)
		}
	}
	return nil
}

func (s *Store) tracePage(ctx context.Context, id string, last int64, trace *store.Trace) (err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT `+columns+` FROM `+s.prefix+` WHERE "offset" > ? AND "offset" <= ? AND id = ? ORDER BY "offset"`,
		last-traceSpan, last, id)
	if err != nil {
		return err
	}
	defer func() { err = closeRows(rows, err) }()
	var envelopes scanner
	for rows.Next() {
		e, err := envelopes.scan(rows)
		if err != nil {
			return err
		}
		trace.Rows = append(trace.Rows, store.TracedRow{Envelope: e})
	}
	return rows.Err()
}

func (s *Store) countBefore(ctx context.Context, offset int64, st *stand) (before int64, err error) {
	settled, err := st.settledCondition()
	if err != nil {
		return 0, err
	}
	err = s.db.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM `+s.prefix+` WHERE "offset" > ? AND "offset" < ? AND NOT `+settled.sql+` LIMIT ?)`,
		append(append([]any{int64(st.pos), offset}, settled.args...), store.PendingLimit)...).Scan(&before)
	return before, err
}

func (s *Store) receiptsOf(ctx context.Context, id string) (receipts []store.TracedReceipt, err error) {
	rows, err := s.db.QueryContext(ctx,
		`SELECT sink, "offset", id, receipt, attempt, delivered_at FROM `+s.prefix+`_receipts WHERE id = ? ORDER BY sink, "offset"`, id)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var r store.TracedReceipt
		var at string
		if err := rows.Scan(&r.Sink, &r.Offset, &r.ID, &r.Receipt.Receipt, &r.Attempt, &at); err != nil {
			return nil, err
		}
		if r.DeliveredAt, err = parseTime(at); err != nil {
			return nil, fmt.Errorf("delivered_at: %w", err)
		}
		receipts = append(receipts, r)
	}
	return receipts, rows.Err()
}
