package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/driverrows"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// ProbeLog returns the highest offset assigned. It is committed, like every row up to it: a rollback also
// undoes its offsets.
func (d *dialect) ProbeLog(ctx context.Context) (store.Target, error) {
	last, err := d.last(ctx, d.db)
	if err != nil {
		return nil, fmt.Errorf("probe the log: %w", err)
	}
	return target(last), nil
}

// last returns the highest offset assigned.
func (s *Store) last(ctx context.Context, q tables.Querier) (last int64, err error) {
	// The second number is needed if only sqlite_sequence was emptied.
	err = q.QueryRowContext(ctx, `SELECT max(
		coalesce((SELECT seq FROM sqlite_sequence WHERE name = ?), 0),
		coalesce((SELECT max("offset") FROM `+s.names.Log()+`), 0))`, string(s.names)).Scan(&last)
	return last, err
}

// ReadLog returns a reader that continues at a cursor's position.
func (d *dialect) ReadLog(raw json.RawMessage, filter store.Filter) (store.Reader, error) {
	pos, err := parsePosition(raw)
	if err != nil {
		return nil, err
	}
	return &reader{
		store:   d.Store,
		pos:     pos,
		filter:  filter,
		nothing: filter.Slots.First > 0 || filter.Types.None(),
	}, nil
}

// page is one range scan of the primary key.
func page(r *tables.Runner, f store.Filter, from, until position, limit int) tables.Expr {
	where := tables.SQL(`"offset" > ? AND "offset" <= ? AND `+tables.NotCancelled, int64(from), int64(until))
	if !f.Types.All() {
		where = tables.SQL(`? AND ?`, where, typeCondition(f.Types))
	}
	r.During(&where, f.Since, f.Until)
	return tables.SQL(`SELECT `+columns+` FROM {log} o WHERE ? ORDER BY "offset" {limit} ?`, where, int64(limit))
}

// reader reads the log by offset.
type reader struct {
	store   *Store
	pos     position
	filter  store.Filter
	nothing bool // no row can match the filter
}

// Next returns the next page up to target. If there cannot be any rows, it does not query.
func (r *reader) Next(ctx context.Context, t store.Target, limit int) (store.Page, error) {
	from, until, rebased := r.pos, position(t.Last()), ""
	if until < from {
		// Either the target is older than the position, which another process has reached, or the
		// log began again. Only a new probe can show which.
		fresh, err := r.store.dialect.ProbeLog(ctx)
		if err != nil {
			return store.Page{}, err
		}
		until = position(fresh.Last())
		if until >= from {
			return r.page(from, nil, from, true, ""), nil
		}
		rebased = fmt.Sprintf("the cursor is past offset %d and the log ends at %d: its rows were deleted and its numbering started again", from, until)
		from = 0
	}
	if from == until || r.nothing {
		return r.page(from, nil, until, true, rebased), nil
	}
	envelopes, cut, err := r.read(ctx, from, until, limit)
	if err != nil {
		return store.Page{}, fmt.Errorf("read the log: %w", err)
	}
	if cut || len(envelopes) == limit {
		last := position(envelopes[len(envelopes)-1].Offset)
		return r.page(from, envelopes, last, last == until, rebased), nil
	}
	return r.page(from, envelopes, until, true, rebased), nil
}

// columns are the columns of an envelope, as a scanner reads them: all rows are in slot 0, and a payload may have
// been written as a text or a number.
const columns = `"offset", 0, id, type, version, "key", occurred_on, deliver_at, metadata, CAST(payload AS BLOB)`

var format = &driverrows.Format{Drivers: "modernc.org/sqlite", Text: parseTime}

// read reads the rows between two places; cut reports that they were too large for one page.
func (r *reader) read(ctx context.Context, from, until position, limit int) (_ []notification.Envelope, cut bool, err error) {
	query, args := r.store.run.Render(page(r.store.run, r.filter, from, until, limit))
	values := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		values[i] = driver.NamedValue{Ordinal: i + 1, Value: arg}
	}
	conn, err := r.store.db.Conn(ctx)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = cmp.Or(err, conn.Close()) }()
	s := format.Scanner(min(limit, 1024))
	_, err = format.Query(ctx, conn, query, values, func(row []driver.Value) (bool, error) { return s.ScanPage(row, limit, func() {}) })
	return s.Envelopes, s.Cut, err
}

// page moves the reader to end and returns the rows up to there.
func (r *reader) page(start position, envelopes []notification.Envelope, end position, caughtUp bool, rebased string) store.Page {
	r.pos = end
	return store.Page{
		Start:     start,
		Envelopes: envelopes,
		End:       end,
		CaughtUp:  caughtUp,
		Rebased:   rebased,
		After:     func(i int) store.Position { return position(envelopes[i].Offset) },
	}
}

// typeCondition is the filter as SQL. The lists are passed as JSON arrays, so their length is not
// limited by the number of parameters; a single prefix, as sinks with a route for * have, takes less time
// by itself. Unlike LIKE and GLOB, substr has no special characters.
func typeCondition(f notification.TypeFilter) tables.Expr {
	not := ""
	if f.Except {
		not = "NOT "
	}
	if len(f.Names) == 0 && len(f.Prefixes) == 1 {
		return tables.SQL(not+`(substr(type, 1, ?) = ?)`, int64(utf8.RuneCountInString(f.Prefixes[0])), f.Prefixes[0])
	}
	return tables.SQL(not+`(type IN (SELECT value FROM json_each(?)) OR EXISTS (
		WITH prefixes AS MATERIALIZED (SELECT value, length(value) AS n FROM json_each(?))
		SELECT 1 FROM prefixes WHERE substr(type, 1, n) = value))`, jsonArray(f.Names), jsonArray(f.Prefixes))
}

// jsonArray returns a list as one argument, for json_each.
func jsonArray[T any](list []T) string {
	if len(list) == 0 {
		return "[]"
	}
	raw, err := json.Marshal(list)
	if err != nil {
		panic(err) // texts and numbers can always be encoded
	}
	return string(raw)
}
