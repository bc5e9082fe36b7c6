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
func (t *Tables) Trace(ctx context.Context, id string, at int64) (store.Trace, error) {
	trace, err := t.trace(ctx, id, at)
	if err != nil {
		return store.Trace{}, t.failed(err, "look for notification %s", id)
	}
	return trace, nil
}

func (t *Tables) trace(ctx context.Context, id string, at int64) (trace store.Trace, err error) {
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
		if err := t.traceLog(ctx, id, at, cursors, &trace); err != nil {
			return trace, err
		}
	}
	if trace.Parked, err = t.FindParked(ctx, store.ParkedFilter{ID: id}, store.ParkedPlace{}, tracedDeliveries); err != nil {
		return trace, err
	}
	if trace.Receipts, err = t.receiptsWhere(ctx, SQL(`id = ?`, id)); err != nil {
		return trace, err
	}
	err = t.eachCancellation(ctx, SQL(`id = ?`, id), func(_ string, c store.Cancellation) { trace.Cancelled = append(trace.Cancelled, c) })
	return trace, err
}

// traceLog looks for the row at an offset, or else around the time that the id holds, and then
// from the end of the log on.
func (t *Tables) traceLog(ctx context.Context, id string, at int64, cursors []cursor, trace *store.Trace) error {
	last, err := t.lastOffset(ctx)
	if err != nil {
		return err
	}
	if at > 0 {
		if err := t.tracePart(ctx, id, at, at, trace); err != nil {
			return err
		}
		last = 0
	} else if made := notification.IDTime(id); !made.IsZero() && last-trace.Oldest.Offset >= traceSpan {
		since, err := t.writtenSince(ctx, made, trace.Oldest.Offset, last)
		if err != nil {
			return err
		}
		if err := t.tracePart(ctx, id, since-traceSpan/2, since+traceSpan/2, trace); err != nil {
			return err
		}
	}
	for ; last >= trace.Oldest.Offset && len(trace.Rows) == 0; last -= traceSpan {
		if err := t.tracePart(ctx, id, last-traceSpan+1, last, trace); err != nil {
			return err
		}
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
