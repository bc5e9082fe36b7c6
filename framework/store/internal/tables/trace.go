package tables

import (
	"cmp"
	"context"
	"slices"
	"strings"

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
func (t *Tables) Trace(ctx context.Context, q store.TraceQuery) (trace store.Trace, err error) {
	defer t.tried(&err, "look for notification %s", q.ID)
	// A delivery moves from the log to the parked table or the receipts, never back: reading in
	// this order finds it in one of them.
	cursors, err := t.placed(ctx, t.db, "")
	if err != nil {
		return trace, err
	}
	if trace.Oldest, err = t.run.Oldest(ctx, t.db, 0); err != nil {
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
	if trace.Receipts, err = t.receiptsWhere(ctx, SQL(`id = ?`, q.ID)); err != nil {
		return trace, err
	}
	err = t.eachCancellation(ctx, SQL(`id = ?`, q.ID), func(_ string, c store.Cancellation) { trace.Cancelled = append(trace.Cancelled, c) })
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
func (t *Tables) traceLog(ctx context.Context, q store.TraceQuery, cursors []cursor, trace *store.Trace) error {
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
func (t *Tables) findRow(ctx context.Context, q store.TraceQuery, trace *store.Trace) error {
	if q.Offset > 0 {
		return t.tracePart(ctx, q.ID, q.Offset, q.Offset, trace)
	}
	last, err := t.lastOffset(ctx)
	if err != nil {
		return err
	}
	oldest := trace.Oldest.Offset
	if made := notification.IDTime(q.ID); q.Before > 0 {
		last = min(last, q.Before-1)
	} else if !made.IsZero() && last-oldest >= traceSpan {
		since, err := t.writtenSince(ctx, made, oldest, last)
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

func (t *Tables) tracePart(ctx context.Context, id string, first, last int64, trace *store.Trace) error {
	query, args := t.run.Render(SQL(`SELECT `+loggedColumns+` FROM {log} WHERE "offset" >= ? AND "offset" <= ? AND id = ? ORDER BY "offset" {whole log}`, first, last, id))
	return t.dialect.EachParked(ctx, t.db, query, args, func(d *store.ParkedDelivery) (bool, error) {
		trace.Rows = append(trace.Rows, store.TracedRow{Envelope: d.Envelope})
		return true, nil
	})
}

// loggedColumns are the columns of a row of the log in the form of parkedColumns.
const loggedColumns = `{selected}, '', 0, NULL, '', '', '', 0, NULL, '', NULL`

// traceLane adds the state of a row at a cursor, if the row is in its lane. It examines that many
// rows to count those before it.
func (t *Tables) traceLane(ctx context.Context, r *store.TracedRow, c *cursor, look int) error {
	offset, slots := r.Envelope.Offset, c.lane.Slots
	if r.Envelope.Slot < slots.First || r.Envelope.Slot > slots.Last {
		return nil
	}
	l := store.TracedLane{Lane: c.lane, Owner: c.Owner, Paused: c.Paused, OtherLog: c.place.Conflict != ""}
	if !l.OtherLog {
		var unsettled int
		if err := t.run.Row(ctx, t.db, `SELECT count(*) FROM {log} WHERE "offset" = ? AND NOT ? {whole log}`, offset, t.settled(c)).Scan(&unsettled); err != nil {
			return err
		}
		l.Settled = unsettled == 0
	}
	if !l.OtherLog && !l.Settled {
		var looked int
		err := t.run.Row(ctx, t.db, `SELECT count(*), coalesce(sum(CASE WHEN slot BETWEEN ? AND ? AND NOT ? THEN 1 ELSE 0 END), 0)
			FROM (SELECT * FROM {log} WHERE "offset" > ? AND "offset" < ? ORDER BY "offset" LIMIT ?) earlier {whole log}`,
			slots.First, slots.Last, t.settled(c), c.place.Through, offset, look).Scan(&looked, &l.Before)
		if err != nil {
			return err
		}
		l.Before, l.More = min(l.Before, store.PendingLimit), looked == look
	}
	r.Lanes = append(r.Lanes, l)
	return nil
}

// receiptsWhere returns the receipts that a condition selects, by sink and offset.
func (t *Tables) receiptsWhere(ctx context.Context, where Expr) ([]store.TracedReceipt, error) {
	receipts, err := t.readReceipts(ctx, receiptsQuery(where))
	slices.SortFunc(receipts, func(a, b store.TracedReceipt) int {
		return cmp.Or(strings.Compare(a.Sink, b.Sink), cmp.Compare(a.Offset, b.Offset))
	})
	return receipts, err
}
