package tables

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// traceSpan is how many offsets one query for an id looks through.
const traceSpan = 200_000

// tracedBefore is how many rows a trace looks through for what waits before a row, over all lanes:
// a lane may have a small part of the log's rows.
const tracedBefore = 50_000

// tracedDeliveries is how many parked deliveries of one id a trace lists.
const tracedDeliveries = 1000

// Trace gathers what there is of a notification; see store.Inspector.
func (t *Tables) Trace(ctx context.Context, q store.TraceQuery) (store.Trace, error) {
	trace, err := t.trace(ctx, q)
	if err != nil {
		return store.Trace{}, t.failed(err, "look for notification %s", q.ID)
	}
	return trace, nil
}

func (t *Tables) trace(ctx context.Context, q store.TraceQuery) (trace store.Trace, err error) {
	// A delivery goes from the log to the parked table or the receipts, never back:
	// looking in this order finds it in one of them.
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
	if q.Offset = offsetOf(&trace); q.Offset > 0 { // what else there is of it says where its row is
		trace.Next = 0
		err = t.traceLog(ctx, q, cursors, &trace)
	}
	return trace, err
}

// offsetOf is that of the notification's row, as far as it is known without that; else 0.
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

// traceLog looks for the row, and how the cursors stand with it.
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

// findRow looks for the row at an offset, or else around the time that the id holds, and then from the end
// of the log on.
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

// loggedColumns are those of a row of the log in the form of parkedColumns.
const loggedColumns = `{selected}, '', 0, NULL, '', '', '', 0, NULL, '', NULL`

// traceLane adds how a cursor stands with a row, if the row is of its lane. It looks through so many
// rows for those before it.
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

// receiptsWhere are those that a condition selects, by sink and offset.
func (t *Tables) receiptsWhere(ctx context.Context, where Expr) ([]store.TracedReceipt, error) {
	receipts, err := t.readReceipts(ctx, receiptsQuery(where))
	slices.SortFunc(receipts, func(a, b store.TracedReceipt) int {
		return cmp.Or(strings.Compare(a.Sink, b.Sink), cmp.Compare(a.Offset, b.Offset))
	})
	return receipts, err
}
