package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/driverrows"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/spans"
)

// reader reads the log delta by delta. The two snapshots of a delta determine its rows, so it does not
// matter which other rows the statement of a page sees.
type reader struct {
	store  *Store
	filter store.Filter
	where  string // the condition of the filter
	pos    position
	life   string
	left   spans.Set // the rest of the current delta
	known  bool      // left belongs to pos
	pace   driverrows.Pace
	note   string
}

// ReadLog continues at a cursor's position.
func (d *dialect) ReadLog(raw json.RawMessage, filter store.Filter) (store.Reader, error) {
	pos, err := parsePosition(raw)
	if err != nil {
		return nil, err
	}
	d.tracker.learn(pos.goal())
	return &reader{store: d.Store, filter: filter, where: d.filterSQL(filter), pos: pos, life: filter.Server}, nil
}

// Next returns the next page of the current delta, or of the one up to target.
func (r *reader) Next(ctx context.Context, goal store.Target, limit int) (store.Page, error) {
	t, ours := goal.(*target)
	if !ours {
		return store.Page{}, fmt.Errorf("target %T is not of this store", goal)
	}
	if r.life == "" {
		r.life = t.life
	}
	for {
		if t.life != r.life {
			return store.Page{}, store.ErrServerChanged
		}
		if r.pos.until == nil {
			next, err := r.begin(ctx, t)
			if err != nil {
				return store.Page{}, err
			}
			if next == nil {
				return r.page(r.pos, nil, true), nil
			}
			if t = next; r.pos.until == nil {
				continue
			}
		}
		start := r.pos
		if b := t.brings(r, limit); b != nil {
			r.pos, r.known = position{from: *r.pos.until}, false
			page := r.page(start, b.rows, t.complete())
			page.Asked = b.asked
			return page, nil
		}
		envelopes, err := r.read(ctx, limit)
		if err != nil {
			return store.Page{}, fmt.Errorf("read the log: %w", session.Advise(err))
		}
		caughtUp := r.pos.until == nil && t.complete() && join(r.pos.from, t.at).equal(r.pos.from)
		if len(envelopes) > 0 || caughtUp {
			return r.page(start, envelopes, caughtUp), nil
		}
	}
}

// begin begins the delta up to t. It returns a newer target if t is older than the position, or if the
// log was started again, and nil if there are no more rows.
func (r *reader) begin(ctx context.Context, t *target) (*target, error) {
	until := join(r.pos.from, t.at)
	switch {
	case r.pos.from.top > t.last:
		gone, err := r.startedAgain(ctx)
		if err != nil || gone == "" {
			return nil, err
		}
		r.note, r.pos, r.known = gone, position{}, false
	case !until.equal(r.pos.from):
		r.pos.until, r.pos.offset, r.known = &until, 0, false
		r.pace.Restart()
		return t, nil
	case t.complete() || r.pos.from.top >= t.last:
		return nil, nil
	}
	return r.store.tracker.probe(ctx, nil)
}

// startedAgain returns why the position belongs to an earlier log. It returns "" if it does not: then
// the target is older than the position, which another process has written since.
func (r *reader) startedAgain(ctx context.Context) (reason string, err error) {
	_, err = r.store.on(ctx, r.store.db, r.life, func(c *sql.Conn) error {
		next, err := r.store.nextOffset(ctx, c)
		reason = conflict(r.pos, next)
		return err
	})
	return reason, err
}

// conflict returns why a position cannot belong to the log whose next offset is known; "" if it may.
func conflict(p position, next int64) string {
	top := p.goal().top
	if top == 0 || next > top {
		return ""
	}
	return fmt.Sprintf("the cursor is past offset %d and the log hands out %d next: it was truncated, or is another one", top, next)
}

// read reads the next rows of the delta, at most limit, and moves the position.
func (r *reader) read(ctx context.Context, limit int) ([]notification.Envelope, error) {
	if !r.known {
		r.left, r.known = r.store.tracker.withoutDead(delta(r.pos.from, *r.pos.until).Behind(r.pos.offset)), true
	}
	rows, window := r.pace.Next(limit)
	part := r.left.First(window)
	if len(part) == 0 {
		r.pos, r.known = position{from: *r.pos.until}, false
		return nil, nil
	}
	cover := spans.Covering(part)
	last := cover[len(cover)-1].Last
	s, err := r.query(ctx, cover, rows)
	if err != nil {
		r.pace.Failed(rows)
		return nil, err
	}
	if s.Cut || len(s.Envelopes) == rows {
		last = s.Last().Offset
		r.pace.Dense(max(int64(rows), last-part[0].First))
	} else {
		r.pace.Sparse()
	}
	r.pace.Had(s, rows)
	envelopes := part.Only(s.Envelopes)
	r.pos.offset = last
	if r.left = r.left.Behind(last); len(r.left) == 0 {
		r.pos, r.known = position{from: *r.pos.until}, false
	}
	return envelopes, nil
}

// query reads the rows of some ranges.
func (r *reader) query(ctx context.Context, cover spans.Set, limit int) (s *driverrows.Scanner, err error) {
	ctx, cancel := context.WithTimeout(ctx, driverrows.StatementTime)
	defer cancel()
	query := `SELECT ` + columns + ` FROM ` + r.store.names.Log() + ` o FORCE INDEX (PRIMARY) WHERE ` + cover.Where() + r.where +
		" ORDER BY `offset` LIMIT " + strconv.Itoa(limit)
	_, err = r.store.on(ctx, r.store.db, r.life, func(c *sql.Conn) error {
		s = format.Scanner(min(limit, driverrows.FirstRows))
		_, err := format.Query(ctx, c, query, nil, func(row []driver.Value) (bool, error) { return s.ScanPage(row, limit, cancel) })
		return err
	})
	if s != nil && s.Cut {
		err = nil // an error of the rows that were not read
	}
	return s, err
}

// page wraps rows that end at the reader's position.
func (r *reader) page(start position, envelopes []notification.Envelope, caughtUp bool) store.Page {
	p := store.Page{Start: start, Envelopes: envelopes, End: r.pos, CaughtUp: caughtUp, Rebased: r.note}
	r.note = ""
	p.After = func(i int) store.Position {
		if i == len(envelopes)-1 {
			return p.End
		}
		return position{from: start.from, until: start.until, offset: envelopes[i].Offset}
	}
	return p
}

// filterSQL returns the condition of a filter, without arguments. It begins with AND.
func (s *Store) filterSQL(f store.Filter) string {
	where := ` AND ` + s.notCancelled + ` AND o.type <> '` + VoidType + `'`
	if !f.Slots.All() {
		where += ` AND slot BETWEEN ` + strconv.Itoa(f.Slots.First) + ` AND ` + strconv.Itoa(f.Slots.Last)
	}
	if !f.Types.All() {
		where += ` AND ` + typesSQL(f.Types)
	}
	if !f.Since.IsZero() {
		where += ` AND occurred_on >= '` + formatTime(f.Since) + `'`
	}
	if !f.Until.IsZero() {
		where += ` AND occurred_on < '` + formatTime(f.Until) + `'`
	}
	return where
}
