package looks

import (
	"context"
	"database/sql"
	"time"

	"github.com/waybill-go/waybill/framework/store/internal/tables"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// unpaid are the columns of an envelope after its slot, without its payload.
const unpaid = `id, type, version, "key", occurred_on, deliver_at, metadata, '' AS payload`

// How much one statement of a page examines: the first ones little, so that a page that is soon
// full costs little with any plan, and each later one a multiple of the one before.
const (
	browseFirst  = 1000
	browseGrowth = 4
	browseMost   = 50_000
	// For more, a planner without statistics of the parked table reads and sorts all of it.
	browseParkedMost = 4000
)

// idDelay is the longest time from making an id to writing its row that a search by id allows for.
const idDelay = 10 * time.Minute

// Browse returns rows of the log; see store.Inspector.
func (t *Looks) Browse(ctx context.Context, q store.LogQuery) (page store.LogPage, err error) {
	defer t.run.Tried(&err, "list rows of the log")
	oldest, err := t.run.Oldest(ctx, t.run.DB, 0)
	if err != nil || oldest == nil {
		return page, err
	}
	low, high, err := t.browseBounds(ctx, q, oldest.Offset)
	if err != nil {
		return page, err
	}
	first := max(low, high-q.Offsets+1)
	for last, span := high, int64(browseFirst); last >= first && len(page.Rows) < q.Limit; span = min(span*browseGrowth, browseMost) {
		from := max(first, last-span+1)
		if err := t.browsePart(ctx, q, from, last, &page); err != nil {
			return page, err
		}
		last = from - 1
	}
	if n := len(page.Rows); n > 0 && n == q.Limit {
		first = page.Rows[n-1].Offset
	}
	if first > low {
		page.Next = first
	}
	if first <= high {
		page.Last, err = t.run.Oldest(ctx, t.run.DB, first-1)
	}
	return page, err
}

// browseBounds returns the offsets between which the rows can be. For an id with a time, they are
// about when it was written, not when it occurred.
func (t *Looks) browseBounds(ctx context.Context, q store.LogQuery, oldest int64) (low, high int64, err error) {
	low = oldest
	if high, err = t.run.LastOffset(ctx); err != nil {
		return 0, 0, err
	}
	end := high
	since, until := q.Since, q.Until
	if made := notification.IDTime(q.ID); !made.IsZero() {
		since, until = made, made.Add(idDelay)
	}
	if !since.IsZero() {
		if low, err = t.run.WrittenSince(ctx, since.Add(-tables.ClockSkew), oldest, end); err != nil {
			return 0, 0, err
		}
	}
	switch {
	case q.Before > 0:
		high = min(end, q.Before-1)
	case !until.IsZero():
		high, err = t.run.WrittenUntil(ctx, until.Add(tables.ClockSkew), oldest, end)
	}
	return low, high, err
}

func (t *Looks) browsePart(ctx context.Context, q store.LogQuery, first, last int64, page *store.LogPage) error {
	query, args := t.run.Render(BrowseQuery(t.run, q, first, last, q.Limit-len(page.Rows)))
	return t.run.Dialect.EachParked(ctx, t.run.DB, query, args, func(d *store.ParkedDelivery) (bool, error) {
		page.Rows = append(page.Rows, d.Envelope)
		return true, nil
	})
}

// BrowseQuery reads a range of offsets, backwards.
func BrowseQuery(r *tables.Runner, q store.LogQuery, first, last int64, limit int) tables.Expr {
	where := tables.SQL(`"offset" >= ? AND "offset" <= ?`, first, last)
	if q.ID != "" {
		where.And(`id = ?`, q.ID)
	}
	if q.Key != "" {
		where.And(`"key" = ?`, q.Key)
	}
	if !q.Types.None() && !q.Types.All() {
		where.And(`?`, r.Dialect.Types(q.Types))
	}
	r.During(&where, q.Since, q.Until)
	return tables.SQL(`SELECT `+loggedColumns+` FROM (SELECT "offset", {slot} AS slot, `+unpaid+` FROM {log} WHERE ? ORDER BY "offset" DESC {limit} ?) newest ORDER BY "offset" DESC {whole log}`, where, limit)
}

// BrowseParked returns parked deliveries; see store.Inspector.
func (t *Looks) BrowseParked(ctx context.Context, q store.ParkedQuery) (page store.ParkedPage, err error) {
	defer t.run.Tried(&err, "list parked deliveries")
	where := t.run.Matches(q.Filter)
	if q.Filter.ID != "" {
		return page, t.parkedPart(ctx, q, tables.SQL(`id = ? AND (sink, "offset", id) > (?, ?, ?)`, q.Filter.ID, q.After.Sink, q.After.Offset, q.After.ID), where, &page)
	}
	for looked, span := 0, browseFirst; ; span = min(span*browseGrowth, browseParkedMost) {
		part := t.parkedAfter(q.Filter.Sink, q.After)
		part.Text += ` ORDER BY sink, "offset", id`
		if err := t.parkedPart(ctx, q, tables.SQL(`? {limit} ?`, part, span), where, &page); err != nil || page.Next != (store.ParkedPlace{}) {
			return page, err
		}
		end, err := t.endOfPart(ctx, part, span)
		if err != nil || end == (store.ParkedPlace{}) {
			return page, err
		}
		q.After = end
		if looked += span; looked >= q.Look {
			page.Next = end
			return page, nil
		}
	}
}

// parkedAfter is the condition that a parked delivery is after a place. It is a range of the primary
// key even for a single sink: for an equality, a planner without statistics expects few rows, and
// sorts them.
func (*Looks) parkedAfter(sink string, after store.ParkedPlace) tables.Expr {
	if sink == "" {
		return tables.SQL(`(sink, "offset", id) > (?, ?, ?)`, after.Sink, after.Offset, after.ID)
	}
	if after.Sink != sink {
		after = store.ParkedPlace{Sink: sink}
	}
	return tables.SQL(`(sink, "offset", id) > (?, ?, ?) AND sink <= ?`, after.Sink, after.Offset, after.ID, sink)
}

// parkedPart adds what matches in one part of the parked deliveries. The part is selected first, by
// the primary key, so that no plan reads more.
func (t *Looks) parkedPart(ctx context.Context, q store.ParkedQuery, part, where tables.Expr, page *store.ParkedPage) error {
	room := q.Limit - len(page.Deliveries)
	query, args := t.run.Render(tables.SQL(`SELECT `+tables.ParkedColumns+` FROM (SELECT "offset", slot, `+unpaid+`, state, attempt, due_at, last_error, attempts, receipt, hook_error, hook_failures, first_parked_at, collect_group, collection, sink, updated_at
		FROM {parked} WHERE ?) p WHERE ? ORDER BY sink, "offset", id {limit} ? {whole parked}`, part, where, room+1))
	return t.run.Dialect.EachParked(ctx, t.run.DB, query, args, func(d *store.ParkedDelivery) (bool, error) {
		if n := len(page.Deliveries); n == q.Limit {
			page.Next = page.Deliveries[n-1].Place()
			return false, nil
		}
		page.Deliveries = append(page.Deliveries, *d)
		return true, nil
	})
}

// endOfPart returns the last place of a part of that size; the zero value if there are fewer.
func (t *Looks) endOfPart(ctx context.Context, part tables.Expr, span int) (end store.ParkedPlace, err error) {
	err = t.run.Each(ctx, t.run.DB, func(rows *sql.Rows) error { return rows.Scan(&end.Sink, &end.Offset, &end.ID) },
		`SELECT * FROM (SELECT sink, "offset", id FROM {parked} WHERE ? LIMIT 1 OFFSET ?) last_one {whole parked}`, part, span-1)
	return end, err
}
