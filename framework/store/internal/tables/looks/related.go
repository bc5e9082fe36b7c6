package looks

import (
	"cmp"
	"context"
	"slices"

	"github.com/waybill-go/waybill/framework/store/internal/tables"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Related searches for the notifications of a correlation; see store.Inspector.
func (t *Looks) Related(ctx context.Context, q store.RelatedQuery) (related store.Related, err error) {
	defer t.run.Tried(&err, "look for what is related to %s", q.ID)
	// In the same order as trace, for the same reason.
	cursors, err := t.run.Placed(ctx, t.run.DB, "")
	if err != nil {
		return related, err
	}
	found := &traces{of: make(map[string]*store.Trace), limit: q.Limit}
	if related.Oldest, err = t.run.Oldest(ctx, t.run.DB, 0); err != nil {
		return related, err
	}
	if related.Oldest != nil {
		if err := t.relatedRows(ctx, q, found, &related); err != nil {
			return related, err
		}
	}
	if err := t.relatedLanes(ctx, found, cursors); err != nil {
		return related, err
	}
	if related.Omitted, err = t.relatedParked(ctx, q.ID, found); err != nil {
		return related, err
	}
	if err := t.relatedEnds(ctx, found); err != nil {
		return related, err
	}
	related.Traces = found.inOrder()
	return related, nil
}

// relatedRows searches the log, part by part.
func (t *Looks) relatedRows(ctx context.Context, q store.RelatedQuery, found *traces, related *store.Related) error {
	end, err := t.run.LastOffset(ctx)
	if err != nil {
		return err
	}
	from, err := t.relatedFrom(ctx, q, related.Oldest.Offset, end)
	if err != nil {
		return err
	}
	last := min(end, from+q.Offsets-1)
	for first := from; first <= last; {
		next, err := t.relatedPart(ctx, q.ID, first, min(last, first+traceSpan-1), found)
		if err != nil {
			return err
		}
		if first = next; found.full() {
			last = min(last, next-1)
		}
	}
	if last < end {
		related.Next = last + 1
	}
	if related.First, err = t.run.Oldest(ctx, t.run.DB, from-1); err != nil {
		return err
	}
	related.Last, err = t.run.ScanRow(t.run.Row(ctx, t.run.DB, `SELECT "offset", occurred_on FROM {log} WHERE "offset" BETWEEN ? AND ? ORDER BY "offset" DESC LIMIT 1 {whole log}`, from, last))
	if related.First != nil && related.First.Offset > last {
		related.First = nil
	}
	return err
}

// relatedPart searches a part of the log until there is no more room. It returns the offset from
// which to continue.
func (t *Looks) relatedPart(ctx context.Context, id string, first, last int64, found *traces) (next int64, err error) {
	const limit = 1000 // so that little is read in vain if there is no more room
	rows := 0
	query, args := t.run.Render(tables.SQL(`SELECT `+loggedColumns+` FROM (SELECT {logged} FROM {log} p WHERE "offset" >= ? AND "offset" <= ? AND ? ORDER BY "offset" {limit} ?) found ORDER BY "offset" {whole log}`,
		first, last, t.isRelated(id), limit))
	next = last + 1
	err = t.run.Dialect.EachParked(ctx, t.run.DB, query, args, func(d *store.ParkedDelivery) (bool, error) {
		if rows++; rows == limit {
			next = d.Envelope.Offset + 1
		}
		if found.full() && found.of[d.Envelope.ID] == nil {
			next = d.Envelope.Offset
			return false, nil
		}
		trace := found.trace(d.Envelope.ID)
		trace.Rows = append(trace.Rows, store.TracedRow{Envelope: d.Envelope})
		found.size += store.Size(&d.Envelope)
		return true, nil
	})
	return next, err
}

// isRelated is the condition on a row of the log, or a parked delivery, called p.
func (t *Looks) isRelated(id string) tables.Expr {
	return tables.SQL(`(p.id = ? OR ?)`, id, t.run.Dialect.MetadataIs(notification.MetadataCorrelationID, id))
}

// relatedFrom returns where to begin.
func (t *Looks) relatedFrom(ctx context.Context, q store.RelatedQuery, oldest, end int64) (int64, error) {
	switch {
	case q.From > 0:
		return max(q.From, oldest), nil
	case q.Since.IsZero():
		return max(oldest, end-q.Offsets+1), nil
	}
	early, err := t.run.WrittenSince(ctx, q.Since.Add(-tables.ClockSkew), oldest, end)
	if err != nil {
		return 0, err
	}
	since, err := t.run.WrittenSince(ctx, q.Since, early, end)
	// If much was written at once, half of the search is for what came after.
	return max(early, since-q.Offsets/2), err
}

// lanesAtOnce is how many lanes of a sink one statement compares with the log.
const lanesAtOnce = 64

// relatedLanes adds the states of rows at the cursors of their lanes.
func (t *Looks) relatedLanes(ctx context.Context, found *traces, cursors []tables.Cursor) error {
	for sink := range tables.SinksOf(cursors) {
		for lanes := range slices.Chunk(sink, lanesAtOnce) {
			if err := t.relatedSome(ctx, found, lanes); err != nil {
				return err
			}
		}
	}
	return nil
}

// relatedSome is relatedLanes for some lanes of one sink.
func (t *Looks) relatedSome(ctx context.Context, found *traces, lanes []tables.Cursor) error {
	rows := make(map[*store.TracedRow]*tables.Cursor)
	var refs []store.Ref
	var with []tables.Cursor // the lanes of this log about which only the database knows
	unsettled := make(map[int64]bool)
	for i := range lanes {
		c, before := &lanes[i], len(refs)
		for _, trace := range found.of {
			for j := range trace.Rows {
				if r := &trace.Rows[j]; c.StoreLane.Slots.First <= r.Envelope.Slot && r.Envelope.Slot <= c.StoreLane.Slots.Last {
					rows[r] = c
					switch beyond := r.Envelope.Offset > c.Place.Through; {
					case c.Place.Conflict != "" || !beyond:
					case c.Place.Settled.Text == "" && len(c.Ahead) == 0:
						unsettled[r.Envelope.Offset] = true
					default:
						refs = append(refs, store.RefOf(&r.Envelope))
					}
				}
			}
		}
		if len(refs) > before {
			with = append(with, *c)
		}
	}
	if len(refs) > 0 {
		offsets, err := tables.Column[int64](ctx, t.run, t.run.DB, `SELECT "offset" FROM {log} WHERE ("offset", id) IN (?) AND NOT ? {whole log}`, t.run.Dialect.Refs(refs), t.run.SettledInAny(with))
		if err != nil {
			return err
		}
		for _, offset := range offsets {
			unsettled[offset] = true
		}
	}
	for r, c := range rows {
		otherLog := c.Place.Conflict != ""
		r.Lanes = append(r.Lanes, store.TracedLane{
			Lane: c.StoreLane, Owner: c.Owner, Paused: c.Paused, OtherLog: otherLog, Settled: !otherLog && !unsettled[r.Envelope.Offset],
		})
	}
	return nil
}

// relatedParked adds parked deliveries, even if their rows are no longer in the log. It leaves out
// payloads, and deliveries for which there is no room, which it counts.
func (t *Looks) relatedParked(ctx context.Context, id string, found *traces) (omitted int, err error) {
	query, args := t.run.Render(tables.ParkedQuery(tables.SQL(`? ORDER BY "offset", id, sink`, t.isRelated(id))))
	err = t.run.Dialect.EachParked(ctx, t.run.DB, query, args, func(d *store.ParkedDelivery) (bool, error) {
		if found.of[d.Envelope.ID] == nil && found.full() {
			omitted++
			return true, nil
		}
		d.Envelope.Payload = nil
		trace := found.trace(d.Envelope.ID)
		trace.Parked = append(trace.Parked, *d)
		return true, nil
	})
	return omitted, err
}

// relatedEnds adds the receipts and cancellations of what was found.
func (t *Looks) relatedEnds(ctx context.Context, found *traces) error {
	for ids := range slices.Chunk(found.ids, 500) { // far below the limit of arguments
		where := tables.AnyOf(`id`, ids)
		receipts, err := t.receiptsWhere(ctx, where)
		if err != nil {
			return err
		}
		for _, r := range receipts {
			trace := found.of[r.ID]
			trace.Receipts = append(trace.Receipts, r)
		}
		err = t.eachCancellation(ctx, where, func(id string, c store.Cancellation) {
			trace := found.of[id]
			trace.Cancelled = append(trace.Cancelled, c)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// TraceRows traces rows; see store.Inspector.
func (t *Looks) TraceRows(ctx context.Context, rows []notification.Envelope) (all []store.Trace, err error) {
	defer t.run.Tried(&err, "look where rows of the log are")
	// In the same order as trace, for the same reason.
	cursors, err := t.run.Placed(ctx, t.run.DB, "")
	if err != nil {
		return nil, err
	}
	found := &traces{of: make(map[string]*store.Trace)}
	for _, e := range rows {
		trace := found.trace(e.ID)
		trace.Rows = append(trace.Rows, store.TracedRow{Envelope: e})
	}
	if err := t.relatedLanes(ctx, found, cursors); err != nil {
		return nil, err
	}
	for ids := range slices.Chunk(found.ids, 500) { // far below the limit of arguments
		var page store.ParkedPage
		q := store.ParkedQuery{Limit: len(ids) * tracedDeliveries}
		if err := t.parkedPart(ctx, q, tables.AnyOf(`id`, ids), t.run.Matches(q.Filter), &page); err != nil {
			return nil, err
		}
		for _, d := range page.Deliveries {
			trace := found.of[d.Envelope.ID]
			trace.Parked = append(trace.Parked, d)
		}
	}
	if err := t.relatedEnds(ctx, found); err != nil {
		return nil, err
	}
	for _, e := range rows {
		trace := *found.of[e.ID]
		trace.Parked = slices.Clone(trace.Parked)
		trace.Rows = slices.DeleteFunc(slices.Clone(trace.Rows), func(r store.TracedRow) bool { return r.Envelope.Offset != e.Offset })
		all = append(all, trace)
	}
	return all, nil
}

// traces are the traces that were found, by id.
type traces struct {
	of    map[string]*store.Trace
	ids   []string // in the order in which they were found
	limit int
	size  int // of the rows
}

func (f *traces) full() bool { return len(f.ids) >= f.limit || f.size >= tables.PageBytes }

func (f *traces) trace(id string) *store.Trace {
	if f.of[id] == nil {
		f.of[id] = new(store.Trace)
		f.ids = append(f.ids, id)
	}
	return f.of[id]
}

// inOrder returns the traces in log order, by the last row of each id.
func (f *traces) inOrder() []store.Trace {
	all := make([]store.Trace, len(f.ids))
	for i, id := range f.ids {
		all[i] = *f.of[id]
	}
	slices.SortStableFunc(all, func(a, b store.Trace) int { return cmp.Compare(a.Envelope().Offset, b.Envelope().Offset) })
	return all
}
