package postgres

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/driverrows"
	"github.com/waybill-go/waybill/framework/store/postgres/internal/catalog"
)

// divisionByZero is the code with which a page's statement fails on another server: see statement.
const divisionByZero = "22012"

// reader reads the log delta by delta. It is the heart of the store: docs/internals/reading.md
// explains how it works and why it loses nothing.
type reader struct {
	store  *Store
	filter store.Filter
	pos    position
	// durable is the last offset of the sequence at the reader's first position. Later ones do
	// not count: a crash of the server may undo numbers that no commit has seen.
	durable int64
	// server is the server that gave the lease, or whose targets led to the position. In another
	// life of it, or on another server, transactions that had ended may not exist, and their ids
	// may be assigned again.
	server string
	// pace follows the density of the rows. Its window bounds the cost of a query with any plan:
	// without statistics PostgreSQL sorts the whole range for each page.
	pace driverrows.Pace
	read int    // number of rows of the last query; the next one returns about as many
	note string // why the log is read from the oldest row again, for the next page
}

// ReadLog returns a reader that continues at a cursor's position.
func (d *dialect) ReadLog(raw json.RawMessage, filter store.Filter) (store.Reader, error) {
	pos, err := parsePosition(raw)
	if err != nil {
		return nil, err
	}
	return &reader{store: d.Store, filter: filter, pos: pos, durable: pos.goal().Last, server: filter.Server}, nil
}

// Next returns the next page of the current delta, or of the one up to target.
func (r *reader) Next(ctx context.Context, target store.Target, limit int) (store.Page, error) {
	t, ours := target.(*probe)
	if !ours {
		return store.Page{}, fmt.Errorf("target %T is not of this store", target)
	}
	if r.server == "" {
		r.server = t.server
	}
	if t.server != r.server {
		return store.Page{}, store.ErrServerChanged
	}
	newer, err := r.precedes(ctx, t)
	if err != nil {
		return store.Page{}, err
	}
	if newer && r.pos.isNew() {
		d, err := r.store.everything(ctx, t)
		if err != nil {
			return store.Page{}, err
		}
		r.pos = position{history: r.pos.history, delta: &d}
	}
	if r.pos.delta == nil {
		if !newer || !r.begin(t) {
			return r.page(r.pos, nil, nil, true), nil
		}
		if rows, all := t.brings(r); all && len(rows) <= limit {
			start := r.pos
			r.pos = position{history: r.pos.history, base: &start.delta.Until}
			return r.page(start, start.delta, rows, true), nil
		}
	}
	start := r.pos
	for {
		d := r.pos.delta
		rows, window := r.pace.Next(limit)
		upTo := min(d.Last, r.pos.offset+window)
		envelopes, cut, err := r.query(ctx, d, upTo, rows)
		if catalog.Refused(err, divisionByZero) {
			return store.Page{}, store.ErrServerChanged
		}
		if err != nil {
			r.pace.Failed(rows)
			return store.Page{}, fmt.Errorf("read the log: %w", advise(err))
		}
		if cut || len(envelopes) == rows {
			read := envelopes[len(envelopes)-1].Offset - r.pos.offset
			r.pace.Dense(read + read/8)
			r.pos.offset += read
			return r.page(start, d, envelopes, false), nil
		}
		r.pos.offset = upTo
		r.pace.Sparse()
		if upTo == d.Last {
			r.pos = position{history: r.pos.history, base: &d.Until}
			r.pace.Restart()
			return r.page(start, d, envelopes, d.Until.Snapshot.text == t.snapshot.text), nil
		}
		if len(envelopes) > 0 {
			return r.page(start, d, envelopes, false), nil
		}
	}
}

// begin begins the delta up to t. If it cannot have any row, begin skips it without a query and
// returns false.
func (r *reader) begin(t *probe) bool {
	b := r.pos.base
	if b.Snapshot.text == t.snapshot.text {
		return false
	}
	until := b.next(t)
	ended, floor := b.late(&t.snapshot, b.last(t))
	if len(ended) == 0 && t.last <= b.Bound {
		r.pos = position{history: r.pos.history, base: &until}
		return false
	}
	r.pos = position{
		history: r.pos.history,
		delta:   &delta{From: *b, Until: until, Last: b.last(t)},
		offset:  min(floor, b.Bound),
	}
	r.pace.Restart()
	return true
}

// precedes reports whether the reader's position is before t. If not, there are two cases. Either t
// is older than the position, which another process has written since: then there is nothing to
// read. Or the log of the position is gone: offsets or transaction ids that it knows were never
// assigned here. A new probe distinguishes the two. In another log the reader starts over at the
// oldest row: going on would skip rows, or wait forever.
func (r *reader) precedes(ctx context.Context, t *probe) (bool, error) {
	if r.pos.conflict(t, r.durable) == "" {
		r.pos.history = r.pos.history.merge(t.history)
		return true, nil
	}
	r.store.watermark.Store(nil) // it may belong to the log that is gone
	now, err := r.store.probeLog(ctx)
	if err != nil {
		return false, err
	}
	if now.(*probe).server != r.server {
		return false, store.ErrServerChanged
	}
	reason := r.pos.conflict(now.(*probe), r.durable)
	if reason == "" {
		return false, nil
	}
	found, extent, err := r.store.restoreScan(ctx)
	if err != nil {
		return false, err
	}
	if found.server != r.server {
		return false, store.ErrServerChanged
	}
	d := rebase(found, extent, r.pos.goal().Last)
	r.pos, r.durable = position{history: found.history, delta: &d}, 0
	r.pace.Restart()
	r.note = reason
	return true, nil
}

// page makes a page of rows of a delta that end at the reader's position.
func (r *reader) page(start position, d *delta, envelopes []notification.Envelope, caughtUp bool) store.Page {
	history := r.pos.history
	p := store.Page{Start: start, Envelopes: envelopes, End: r.pos, CaughtUp: caughtUp, Rebased: r.note}
	r.note = ""
	p.After = func(i int) store.Position {
		if i == len(envelopes)-1 {
			return p.End
		}
		return position{history: history, delta: d, offset: envelopes[i].Offset}
	}
	return p
}

// query reads the delta's rows with position.offset < "offset" <= upTo, as many as fit into a page.
func (r *reader) query(ctx context.Context, d *delta, upTo int64, limit int) (envelopes []notification.Envelope, cut bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, driverrows.StatementTime)
	defer cancel()
	q := r.statement(d, upTo, limit)
	s := format.Scanner(min(limit, r.read+r.read/8+1))
	err = stream(ctx, r.store.db, q.String(), q.args, func(row []driver.Value) (bool, error) { return s.ScanPage(row, limit, cancel) })
	if s.Cut {
		err = nil // it is about the remaining rows
	}
	r.read = len(s.Envelopes)
	if err == nil {
		r.pace.Had(s, limit)
	}
	return s.Envelopes, s.Cut, err
}

// statement is the query for a page: one range scan of the primary key, with ORDER BY and LIMIT at
// the same level.
func (r *reader) statement(d *delta, upTo int64, limit int) *statement {
	q := &statement{args: []any{r.pos.offset, upTo}}
	q.WriteString(r.store.sql.page)
	// A server that lags behind or has diverged would return fewer rows. So the statement fails on
	// any other server than the target's.
	q.WriteString(` AND 1 / (` + r.store.sql.server + ` = ` + q.arg(r.server) + `)::int = 1`)
	r.where(q, d)
	q.WriteString(` AND ` + r.store.sql.notCancelled + ` ORDER BY "offset" LIMIT ` + strconv.Itoa(limit) + r.store.sql.whole)
	return q
}

// where adds the conditions of the delta: fresh rows and late ones, both visible in the target, and
// the reader's filter.
func (r *reader) where(q *statement, d *delta) {
	visible := `pg_visible_in_snapshot(transaction_id, ` + q.arg(d.Until.Snapshot.text) + `::pg_snapshot)`
	if d.Restored > 0 {
		visible = `("offset" <= ` + q.arg(d.Restored) + ` OR ` + visible + `)`
	}
	q.WriteString(` AND ` + visible)
	ended, _ := d.From.late(&d.Until.Snapshot, d.Last)
	switch {
	case len(ended) == 0:
		q.WriteString(` AND transaction_id >= ` + q.arg(d.From.Snapshot.xmax.String()) + `::xid8`)
	default:
		q.WriteString(` AND (transaction_id >= ` + q.arg(d.From.Snapshot.xmax.String()) + `::xid8 AND "offset" > ` + q.arg(d.From.Bound) +
			` OR transaction_id = ANY(` + q.arg(pq.Array(textsOf(ended))) + `::xid8[]))`)
	}
	r.wanted(q)
}

// wanted adds the conditions of the reader's filter.
func (r *reader) wanted(q *statement) {
	if !r.filter.Slots.All() {
		q.WriteString(` AND ` + slotOf + ` BETWEEN ` + q.arg(r.filter.Slots.First) + ` AND ` + q.arg(r.filter.Slots.Last))
	}
	typesSQL(q, r.filter.Types)
	if !r.filter.Since.IsZero() {
		q.WriteString(` AND occurred_on >= ` + q.arg(r.filter.Since))
	}
	if !r.filter.Until.IsZero() {
		q.WriteString(` AND occurred_on < ` + q.arg(r.filter.Until))
	}
}

// typesSQL adds the condition on types. A single prefix is compared without an array, since that is what the
// filter of every sink with a route for * has: of the ways to write it, LIKE takes the least time for a row.
func typesSQL(q *statement, types notification.TypeFilter) {
	if types.All() {
		return
	}
	not := ""
	if types.Except {
		not = "NOT "
	}
	if len(types.Names) == 0 && len(types.Prefixes) == 1 {
		q.WriteString(` AND ` + not + `(type LIKE ` + q.arg(likePrefix(types.Prefixes[0])) + `)`)
		return
	}
	names := append([]string{}, types.Names...) // not nil, which would be NULL, and so the condition
	prefixes := make([]string, len(types.Prefixes))
	for i, p := range types.Prefixes {
		prefixes[i] = likePrefix(p)
	}
	q.WriteString(` AND ` + not + `(type = ANY(` + q.arg(pq.Array(names)) + `::text[]) OR type LIKE ANY(` + q.arg(pq.Array(prefixes)) + `::text[]))`)
}

// likePrefix returns the LIKE pattern for a prefix.
func likePrefix(prefix string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(prefix) + "%"
}

// statement is SQL under construction, with its arguments.
type statement struct {
	strings.Builder
	args []any
}

// arg adds an argument and returns its placeholder.
func (q *statement) arg(v any) string {
	q.args = append(q.args, v)
	return "$" + strconv.Itoa(len(q.args))
}
