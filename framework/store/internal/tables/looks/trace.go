package looks

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/store/internal/tables"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// traceSpan is how many offsets one query for an id covers.
const traceSpan = 200_000

// tracedBefore is how many rows a trace examines to count those before a row, over all lanes: a lane
// may have only a small part of the log's rows.
const tracedBefore = 50_000

// tracedDeliveries is the most parked deliveries of one id that a trace returns.
const tracedDeliveries = 1000

// Trace returns what there is of a notification; see store.Inspector.
func (t *Looks) Trace(ctx context.Context, q store.TraceQuery) (trace store.Trace, err error) {
	defer t.run.Tried(&err, "look for notification %s", q.ID)
	// A delivery moves from the log to the parked table or the receipts, never back: reading in
	// this order finds it in one of them.
	cursors, err := t.run.Placed(ctx, t.run.DB, "")
	if err != nil {
		return trace, err
	}
	if trace.Oldest, err = t.run.Oldest(ctx, t.run.DB, 0); err != nil {
		return trace, err
	}
	if trace.Oldest != nil {
		if err := t.traceLog(ctx, q, cursors, &trace); err != nil {
			return trace, err
		}
	}
	if trace.Parked, err = t.FindParked(ctx, store.ParkedFilter{ID: q.ID}, store.ParkedPlace{}, tracedDeliveries); err != nil {
		return trace, err
	}
	if trace.Receipts, err = t.receiptsWhere(ctx, tables.SQL(`id = ?`, q.ID)); err != nil {
		return trace, err
	}
	err = t.eachCancellation(ctx, tables.SQL(`id = ?`, q.ID), func(_ string, c store.Cancellation) { trace.Cancelled = append(trace.Cancelled, c) })
	if err != nil || trace.Next == 0 {
		return trace, err
	}
	if q.Offset = offsetOf(&trace); q.Offset > 0 { // known from what else was found
		trace.Next = 0
		err = t.traceLog(ctx, q, cursors, &trace)
	}
	return trace, err
}

// offsetOf returns the offset of the notification's row if anything else shows it, otherwise 0.
func offsetOf(trace *store.Trace) int64 {
	switch {
	case len(trace.Parked) > 0:
		return trace.Parked[0].Envelope.Offset
	case len(trace.Receipts) > 0:
		return trace.Receipts[0].Offset
	case len(trace.Cancelled) > 0:
		return trace.Cancelled[0].Offset
	}
	return 0
}

// traceLog searches for the row, and adds its state at the cursors.
func (t *Looks) traceLog(ctx context.Context, q store.TraceQuery, cursors []tables.Cursor, trace *store.Trace) error {
	err := t.findRow(ctx, q, trace)
	if err != nil {
		return err
	}
	sinks := make(map[string]bool)
	for i := range cursors {
		sinks[cursors[i].Sink] = true
	}
	for i := range trace.Rows {
		for j := range cursors {
			if err := t.traceLane(ctx, &trace.Rows[i], &cursors[j], tracedBefore/len(sinks)); err != nil {
				return err
			}
		}
	}
	return nil
}

// findRow searches for the row at an offset, or else around the time in the id, and then from the end
// of the log.
func (t *Looks) findRow(ctx context.Context, q store.TraceQuery, trace *store.Trace) error {
	if q.Offset > 0 {
		return t.tracePart(ctx, q.ID, q.Offset, q.Offset, trace)
	}
	last, err := t.run.LastOffset(ctx)
	if err != nil {
		return err
	}
	oldest := trace.Oldest.Offset
	if made := notification.IDTime(q.ID); q.Before > 0 {
		last = min(last, q.Before-1)
	} else if !made.IsZero() && last-oldest >= traceSpan {
		since, err := t.run.WrittenSince(ctx, made, oldest, last)
		if err != nil {
			return err
		}
		if err := t.tracePart(ctx, q.ID, since-traceSpan/2, since+traceSpan/2, trace); err != nil {
			return err
		}
	}
	first := oldest
	if q.Offsets > 0 {
		first = max(oldest, last-q.Offsets+1)
	}
	for ; last >= first && len(trace.Rows) == 0; last -= traceSpan {
		if err := t.tracePart(ctx, q.ID, max(first, last-traceSpan+1), last, trace); err != nil {
			return err
		}
	}
	if len(trace.Rows) == 0 && first > oldest {
		trace.Next = first
	}
	return nil
}

func (t *Looks) tracePart(ctx context.Context, id string, first, last int64, trace *store.Trace) error {
	query, args := t.run.Render(tables.SQL(`SELECT `+loggedColumns+` FROM (SELECT {logged} FROM {log} WHERE "offset" >= ? AND "offset" <= ? AND id = ?) traced ORDER BY "offset" {whole log}`, first, last, id))
	return t.run.Dialect.EachParked(ctx, t.run.DB, query, args, func(d *store.ParkedDelivery) (bool, error) {
		trace.Rows = append(trace.Rows, store.TracedRow{Envelope: d.Envelope})
		return true, nil
	})
}

// loggedColumns are {logged} columns in the form of parkedColumns.
const loggedColumns = `{selected}, '', 0, NULL, '', '', '', '', 0, NULL, '', '', '', NULL`

// traceLane adds the state of a row at a cursor, if the row is in its lane. It examines that many
// rows to count those before it.
func (t *Looks) traceLane(ctx context.Context, r *store.TracedRow, c *tables.Cursor, look int) error {
	offset, slots := r.Envelope.Offset, c.StoreLane.Slots
	if r.Envelope.Slot < slots.First || r.Envelope.Slot > slots.Last {
		return nil
	}
	l := store.TracedLane{Lane: c.StoreLane, Owner: c.Owner, Paused: c.Paused, OtherLog: c.Place.Conflict != ""}
	if !l.OtherLog {
		var unsettled int
		if err := t.run.Row(ctx, t.run.DB, `SELECT count(*) FROM {log} WHERE "offset" = ? AND NOT ? {whole log}`, offset, t.run.Settled(c)).Scan(&unsettled); err != nil {
			return err
		}
		l.Settled = unsettled == 0
	}
	if !l.OtherLog && !l.Settled {
		var looked int
		var last int64
		err := t.run.Row(ctx, t.run.DB, `SELECT count(*), coalesce(max("offset"), 0), coalesce(sum(CASE WHEN {slot} BETWEEN ? AND ? AND NOT ? THEN 1 ELSE 0 END), 0)
			FROM (SELECT * FROM {log} WHERE "offset" > ? AND "offset" < ? ORDER BY "offset" {limit} ?) earlier {whole log}`,
			slots.First, slots.Last, t.run.Settled(c), c.Place.Through, offset, look).Scan(&looked, &last, &l.Before)
		if err != nil {
			return err
		}
		if l.Estimated = looked == look; l.Estimated {
			seen := density{offsets: last - c.Place.Through, rows: int(l.Before)}
			l.Before += int64(seen.in(offset - 1 - last))
		}
	}
	r.Lanes = append(r.Lanes, l)
	return nil
}

// receiptsWhere returns the receipts that a condition selects, by sink and offset.
func (t *Looks) receiptsWhere(ctx context.Context, where tables.Expr) ([]store.TracedReceipt, error) {
	receipts, err := t.readReceipts(ctx, receiptsQuery(where))
	slices.SortFunc(receipts, func(a, b store.TracedReceipt) int {
		return cmp.Or(strings.Compare(a.Sink, b.Sink), cmp.Compare(a.Offset, b.Offset))
	})
	return receipts, err
}

// eachCancellation calls each with the cancellations that a condition on the id selects, in the
// order of their offsets.
func (t *Looks) eachCancellation(ctx context.Context, where tables.Expr, each func(id string, c store.Cancellation)) error {
	return t.run.Each(ctx, t.run.DB, func(rows *sql.Rows) error {
		var id string
		var c store.Cancellation
		if err := rows.Scan(&id, &c.Offset, t.run.Into(&c.At)); err != nil {
			return err
		}
		each(id, c)
		return nil
	}, `SELECT id, "offset", cancelled_at FROM {cancelled} WHERE ? ORDER BY "offset" {whole cancelled}`, where)
}
