package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// dialect is SQLite's part of the tables shared by all databases.
type dialect struct {
	tables.Standard
	*Store
}

var _ tables.Dialect = (*dialect)(nil)

// KeySlot returns the slot as the log computes it.
func (*dialect) KeySlot() string { return "0" }

// Limit makes the argument a part of an expression: SQLite looks at a plain argument of LIMIT when it plans, and plans
// again at each use of the prepared statement.
func (*dialect) Limit() string { return `LIMIT 0 +` }

// Locking returns nothing: there is one writer at a time.
func (*dialect) Locking() string { return `` }

// Now has milliseconds, like SQLite's clock.
func (*dialect) Now() string { return now }

// NowPlus rounds up to a millisecond.
func (*dialect) NowPlus(d time.Duration) tables.Expr {
	return tables.SQL(`strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', (? / 1000.0) || ' seconds')`, milliseconds(d))
}

// Elapsed is 0 for an invalid time. A Julian day as a floating-point number is exact to about 40 µs,
// so the difference of two is rounded to SQLite's milliseconds.
func (*dialect) Elapsed(since string) string {
	return `CAST(round(coalesce((julianday('now') - julianday(` + since + `)) * 86400000, 0)) AS INTEGER) * 1000`
}

// LogTime accepts a time in any form that the log accepts.
func (*dialect) LogTime(expression string) string { return `julianday(` + expression + `)` }

// DueTime converts any form that the log accepts to the one that compares as text.
func (*dialect) DueTime(expression string) string {
	return `strftime('%Y-%m-%dT%H:%M:%f000Z', ` + expression + `)`
}

// Position returns instr.
func (*dialect) Position() string { return `instr` }

// MetadataIs parses the JSON of as few rows as possible: a value of plain characters, which no
// encoder escapes, is in the JSON unchanged.
func (*dialect) MetadataIs(name, value string) tables.Expr {
	is := tables.SQL(`json_extract(p.metadata, ?) = ?`, tables.MetadataPath(name), value)
	if plainValue.MatchString(value) {
		is = tables.SQL(`instr(p.metadata, ?) > 0 AND ?`, value, is)
	}
	return is
}

var plainValue = regexp.MustCompile(`^[A-Za-z0-9._:-]+$`)

// MetadataHas parses the JSON of rows that contain the text.
func (*dialect) MetadataHas(name, part string) tables.Expr {
	return tables.SQL(`instr(p.metadata, ?) > 0 AND instr(json_extract(p.metadata, ?), ?) > 0`, part, tables.MetadataPath(name), part)
}

// ParseTime parses a time written by this package or by an SQL producer.
func (*dialect) ParseTime(text string) (time.Time, error) { return parseTime(text) }

// EachParked reads through database/sql.
func (d *dialect) EachParked(ctx context.Context, db *sql.DB, query string, args []any, each func(*store.ParkedDelivery) (bool, error)) error {
	return tables.EachParked(ctx, db, d, query, args, each)
}

// Refs passes one JSON array, so their number is not limited by that of parameters.
func (*dialect) Refs(refs []store.Ref) tables.Expr {
	pairs := make([][2]any, len(refs))
	for i, r := range refs {
		pairs[i] = [2]any{r.Offset, r.ID}
	}
	return tables.SQL(`SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)`, jsonArray(pairs))
}

// Ranges passes one JSON array.
func (*dialect) Ranges(ranges []store.OffsetRange) tables.Expr {
	return tables.SQL(`EXISTS (SELECT 1 FROM json_each(?) WHERE "offset" BETWEEN json_extract(value, '$.First') AND json_extract(value, '$.Last'))`,
		jsonArray(ranges))
}

// Types is the same condition as in a page's query.
func (*dialect) Types(f notification.TypeFilter) tables.Expr { return typeCondition(f) }

// Missing queries the transaction, which SQLite leaves usable: its errors have one code for
// everything that is wrong with a statement. Through a wrapper that cannot query, it returns false.
func (d *dialect) Missing(ctx context.Context, tx store.Execer, table string, _ error) bool {
	q, asks := tx.(store.RowQuerier)
	if !asks {
		return false
	}
	var tables int
	err := q.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND '"' || name || '"' = ?`, table).Scan(&tables)
	return err == nil && tables == 0
}

// TakeCursors writes, so that a connection whose transactions begin deferred also waits for the write
// lock here, before it has read anything.
func (*dialect) TakeCursors(sink string) tables.Expr {
	return tables.SQL(`UPDATE {cursors} SET revision = revision WHERE sink = ?`, sink)
}

// WriteLease is one statement.
func (d *dialect) WriteLease(ctx context.Context, db *sql.DB, u tables.Update, row *tables.LeaseRow) error {
	return tables.WriteLease(ctx, d.run, db, u, row)
}

// MoveCursor writes first, so that a connection whose transactions begin deferred also waits for the
// write lock here, before it has read anything.
func (d *dialect) MoveCursor(ctx context.Context, q tables.Querier, c *store.Checkpoint, u tables.Update) (func() error, error) {
	return tables.MoveCursor(ctx, d.run, q, c, u)
}

// Level compares offsets.
func (*dialect) Level(positions []json.RawMessage) (json.RawMessage, error) {
	for lane, p := range positions {
		if string(p) != string(positions[0]) {
			return nil, fmt.Errorf("%w: lane 0 is at %s, lane %d at %s", store.ErrNotLevel, positions[0], lane, p)
		}
	}
	return positions[0], nil
}

// Places compares positions with the end of the log: a position after it belongs to another log.
func (d *dialect) Places(ctx context.Context, q tables.Querier, positions []json.RawMessage) ([]tables.Place, error) {
	last, err := d.last(ctx, q)
	if err != nil {
		return nil, err
	}
	places := make([]tables.Place, len(positions))
	for i, raw := range positions {
		pos, err := parsePosition(raw)
		if err != nil {
			return nil, err
		}
		places[i].Through = int64(pos)
		if int64(pos) > last {
			places[i].Conflict = fmt.Sprintf("the cursor is past offset %d and the log ends at %d: the log was started again", pos, last)
		}
	}
	return places, nil
}
