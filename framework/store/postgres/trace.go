package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// traceSpan is how many offsets one query for an id looks through.
const traceSpan = 200_000

// Trace gathers what there is of a notification; see store.Tracer.
func (s *Store) Trace(ctx context.Context, id string) (store.Trace, error) {
	trace, err := s.trace(ctx, id)
	if err != nil {
		return store.Trace{}, fmt.Errorf("look for notification %s: %w", id, advise(err))
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
	if trace.Oldest, err = s.oldest(ctx, s.db); err != nil {
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
	now, err := s.Probe(ctx)
	if err != nil {
		return err
	}
	var last int64
	if err := s.db.QueryRowContext(ctx, `SELECT coalesce(max("offset"), 0) FROM `+s.sql.prefix).Scan(&last); err != nil {
		return err
	}
	for ; last >= trace.Oldest.Offset && len(trace.Rows) == 0; last -= traceSpan {
		if err := s.tracePage(ctx, id, last, all, now.(*probe), trace); err != nil {
			return err
		}
	}
	for i := range trace.Rows {
		r := &trace.Rows[i]
		for j := range r.Lanes {
			if !r.Lanes[j].Settled && !r.Lanes[j].OtherLog {
				if err := s.countBefore(ctx, r.Envelope.Offset, all, &r.Lanes[j]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *Store) tracePage(ctx context.Context, id string, last int64, all []stand, now *probe, trace *store.Trace) error {
	query := `SELECT ` + selected + `, transaction_id::text FROM ` + s.sql.prefix + s.sql.between + ` AND id = $3 ORDER BY "offset"`
	envelopes := newScanner(0)
	return stream(ctx, s.db, query, []any{last - traceSpan, last, id}, func(row []driver.Value) (bool, error) {
		rest, err := envelopes.scan(row)
		if err != nil {
			return false, err
		}
		x, err := parseXID(rest.text())
		if err != nil {
			return false, err
		}
		traced := store.TracedRow{Envelope: envelopes.last()}
		for i := range all {
			if st := &all[i]; st.lane.Slots.First <= traced.Envelope.Slot && traced.Envelope.Slot <= st.lane.Slots.Last {
				traced.Lanes = append(traced.Lanes, st.lookAt(traced.Envelope.Offset, x, now))
			}
		}
		trace.Rows = append(trace.Rows, traced)
		return true, nil
	})
}

// lookAt says how the cursor stands with a row of its lane.
func (st *stand) lookAt(offset int64, x xid, now *probe) store.TracedLane {
	l := store.TracedLane{Lane: st.lane, Owner: st.owner, Paused: st.paused}
	if st.conflict(now) != "" {
		l.OtherLog = true
		return l
	}
	l.Settled = st.pos.settles(offset, x)
	l.Settled = l.Settled || store.ContainsOffset(st.settled, offset)
	return l
}

func (s *Store) countBefore(ctx context.Context, offset int64, all []stand, l *store.TracedLane) error {
	for i := range all {
		st := &all[i]
		if st.lane != l.Lane {
			continue
		}
		q := &statement{args: []any{st.pos.settled(), offset - 1}}
		q.WriteString(`SELECT count(*) FROM (SELECT FROM ` + s.sql.prefix + s.sql.between + ` AND slot BETWEEN ` + q.arg(l.Lane.Slots.First) +
			` AND ` + q.arg(l.Lane.Slots.Last) + ` AND NOT (` + st.settledSQL(q) + `) LIMIT ` + q.arg(store.PendingLimit) + `) before`)
		return s.db.QueryRowContext(ctx, q.String(), q.args...).Scan(&l.Before)
	}
	return nil
}

func (s *Store) receiptsOf(ctx context.Context, id string) (receipts []store.TracedReceipt, err error) {
	rows, err := s.db.QueryContext(ctx,
		`SELECT sink, "offset", id, receipt, attempt, delivered_at FROM `+s.sql.prefix+`_receipts WHERE id = $1 ORDER BY sink, "offset"`, id)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var r store.TracedReceipt
		var at sql.NullTime
		if err := rows.Scan(&r.Sink, &r.Offset, &r.ID, &r.Receipt.Receipt, &r.Attempt, &at); err != nil {
			return nil, err
		}
		r.DeliveredAt = at.Time.UTC()
		receipts = append(receipts, r)
	}
	return receipts, rows.Err()
}
