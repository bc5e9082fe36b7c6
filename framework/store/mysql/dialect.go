package mysql

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/spans"
)

// dialect implements tables.Dialect for MySQL and MariaDB.
type dialect struct {
	tables.Standard
	*Store
}

var _ tables.Dialect = (*dialect)(nil)

// Quote returns the character around identifiers. It works with and without ANSI_QUOTES.
func (*dialect) Quote() string { return "`" }

// Now is constant within a statement, even if the statement waits for a lock: a lease that expires
// while an UPDATE waits for its row is taken by the next attempt.
func (*dialect) Now() string { return `UTC_TIMESTAMP(6)` }

// NowPlus returns a time with microseconds, like Now.
func (*dialect) NowPlus(d time.Duration) tables.Expr {
	return tables.SQL(`UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND`, d.Microseconds())
}

// Elapsed returns the difference of two times.
func (*dialect) Elapsed(since string) string {
	return `TIMESTAMPDIFF(MICROSECOND, ` + since + `, UTC_TIMESTAMP(6))`
}

// Position is INSTR.
func (*dialect) Position() string { return `INSTR` }

// MetadataIs compares a value of the JSON object.
func (*dialect) MetadataIs(name, value string) tables.Expr {
	return tables.SQL(`JSON_UNQUOTE(JSON_EXTRACT(p.metadata, ?)) = ?`, tables.MetadataPath(name), value)
}

// MetadataHas searches a value of the JSON object.
func (*dialect) MetadataHas(name, part string) tables.Expr {
	return tables.SQL(`INSTR(JSON_UNQUOTE(JSON_EXTRACT(p.metadata, ?)), ?) > 0`, tables.MetadataPath(name), part)
}

// ParseTime parses a time from a handle without parseTime.
func (*dialect) ParseTime(text string) (time.Time, error) { return parseTime(text) }

// EachParked reads through database/sql.
func (d *dialect) EachParked(ctx context.Context, db *sql.DB, query string, args []any, each func(*store.ParkedDelivery) (bool, error)) error {
	return tables.EachParked(ctx, db, d, query, args, each)
}

// Refs returns a list, for which both families use the primary key.
func (*dialect) Refs(refs []store.Ref) tables.Expr {
	if len(refs) == 0 {
		return tables.SQL(`SELECT 0, '' FROM DUAL WHERE false`)
	}
	var b strings.Builder
	for i, r := range refs {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('(')
		b.WriteString(strconv.FormatInt(r.Offset, 10))
		b.WriteString(", ")
		b.WriteString(literal(r.ID))
		b.WriteByte(')')
	}
	return tables.SQL(b.String())
}

// Ranges returns a condition for each range.
func (*dialect) Ranges(ranges []store.OffsetRange) tables.Expr {
	return tables.SQL(spans.Set(ranges).Where())
}

// Asked is empty: MariaDB has no LATERAL.
func (*dialect) Asked([]string) tables.Expr { return tables.Expr{} }

// Types returns the same condition as the query of a page.
func (*dialect) Types(f notification.TypeFilter) tables.Expr { return tables.SQL(typesSQL(f)) }

// typesSQL returns the condition on types, without arguments.
func typesSQL(f notification.TypeFilter) string {
	conditions := []string{`false`}
	if len(f.Names) > 0 {
		names := make([]string, len(f.Names))
		for i, name := range f.Names {
			names[i] = literal(name)
		}
		conditions = append(conditions, `type IN (`+strings.Join(names, `, `)+`)`)
	}
	for _, p := range f.Prefixes {
		conditions = append(conditions, `LEFT(type, `+strconv.Itoa(len([]rune(p)))+`) = `+literal(p))
	}
	text := `(` + strings.Join(conditions, ` OR `) + `)`
	if f.Except {
		text = `NOT ` + text
	}
	return text
}

// literal returns a text in hexadecimal digits. So it does not depend on settings of the session, and
// has no special characters of a tables.Expr.
func literal(text string) string {
	if text == "" {
		return `''`
	}
	return `_utf8mb4 0x` + hex.EncodeToString([]byte(text))
}

// Returning is false: MySQL has no RETURNING, and MariaDB does not have it for UPDATE.
func (*dialect) Returning() bool { return false }

// KeySlot returns the slot as the log computes it.
func (*dialect) KeySlot() string { return "CRC32(IF(`key` = '', id, `key`)) & 1023" }

// OnConflict applies to any unique key; each table has only one. The number of changed rows does not
// show how many were new: it depends on a flag of the connection.
func (*dialect) OnConflict(key, columns []string, unless tables.Condition) string {
	if len(columns) == 0 {
		return ` ON DUPLICATE KEY UPDATE ` + key[0] + ` = ` + key[0]
	}
	set := make([]string, len(columns))
	for i, c := range columns {
		set[i] = c + ` = VALUES(` + c + `)`
		if unless.Column != "" {
			set[i] = c + ` = IF(VALUES(` + unless.Column + `) <> '` + unless.Value + `', VALUES(` + c + `), ` + c + `)`
		}
	}
	return ` ON DUPLICATE KEY UPDATE ` + strings.Join(set, `, `)
}

var ofRow = regexp.MustCompile(`new\.(\w+)`)

// Merge applies to any unique key, like OnConflict.
func (*dialect) Merge(_ string, _ []string, set tables.Expr) tables.Expr {
	set.Text = ofRow.ReplaceAllString(strings.ReplaceAll(set.Text, `old.`, ``), `VALUES($1)`)
	return tables.SQL(` ON DUPLICATE KEY UPDATE ?`, set)
}

// NewRow is empty: the INSERT fails.
func (*dialect) NewRow([]string) string { return `` }

// Exists checks the number of the error. The transaction can continue.
func (*dialect) Exists(err error) bool { return session.Refused(err, session.Duplicate) }

// Isolation returns the level without locks on gaps between rows.
func (*dialect) Isolation() sql.IsolationLevel { return sql.LevelReadCommitted }

// SQLState returns the SQLSTATE of the driver's error.
func (*dialect) SQLState(err error) string {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return ""
	}
	return string(e.SQLState[:])
}

// savepoint is set in each transaction in which a function of the user runs.
const savepoint = `waybill_checkpoint`

// Committable fails if the savepoint is gone, and so the transaction: after a deadlock the server has
// rolled it back, and later statements would commit on their own.
func (*dialect) Committable() string { return `RELEASE SAVEPOINT ` + savepoint }

// Collides reports whether the error is a deadlock.
func (*dialect) Collides(err error) bool { return collides(err) }

func collides(err error) bool { return session.Refused(err, session.Deadlock, session.RecordChanged) }

// Missing checks the number of the error.
func (*dialect) Missing(_ context.Context, _ store.Execer, _ string, err error) bool {
	return session.Refused(err, session.NoSuchTable)
}

// Advise adds the hint for the number of the error.
func (*dialect) Advise(err error) error { return session.Advise(err) }

// Counted counts before, into a variable of the session: in REPEATABLE READ, what an INSERT selects is locked with the
// gaps beside it, and inserts of others would wait for the end of the transaction.
func (*dialect) Counted(count tables.Expr) (before, counted tables.Expr) {
	return tables.SQL(`SELECT ? INTO @waybill_counted`, count), tables.SQL(`@waybill_counted`)
}

// TakeCursors locks the rows in the order of the primary key. It is not a SELECT: if one is executed
// with separate arguments, the driver waits forever for the end of the rows.
func (*dialect) TakeCursors(sink string) tables.Expr {
	return tables.SQL(`UPDATE {cursors} SET revision = revision WHERE sink = ?`, sink)
}

// WriteLease also writes the life of the server.
func (d *dialect) WriteLease(ctx context.Context, db *sql.DB, u tables.Update, row *tables.LeaseRow) (err error) {
	row.Server, err = d.on(ctx, db, "", func(c *sql.Conn) error {
		return tables.WriteLeaseInTwo(ctx, d.run, c, u, row)
	})
	return err
}

// MoveCursor checks the life of the server in the same statement, so a checkpoint that only moves the
// cursor is one round trip.
func (d *dialect) MoveCursor(ctx context.Context, q tables.Querier, c *store.Checkpoint, u tables.Update) (committed func() error, err error) {
	if db, isPool := q.(*sql.DB); isPool {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { _ = conn.Close() }() // returns it to the pool
		q = conn
	}
	for again := true; ; again = false {
		written, err := d.run.Exec(ctx, q, `UPDATE {cursors} SET ? WHERE ? AND @waybill_life = ?`, u.Set, u.Where, c.Lease.Server)
		if err != nil {
			return nil, err
		}
		if written > 0 {
			break
		}
		if known, err := d.whyUnmoved(ctx, q, c.Lease); err != nil || known || !again {
			return nil, err
		}
	}
	if c.InTx != nil {
		if _, err := q.ExecContext(ctx, `SAVEPOINT `+savepoint); err != nil {
			return nil, err
		}
	}
	return func() error { return nil }, nil
}

// whyUnmoved returns an error if the lease is lost or the server's life has ended, and nil if the
// checkpoint was already written. known is false if the session had not read its life yet.
func (d *dialect) whyUnmoved(ctx context.Context, q tables.Querier, lease store.Lease) (known bool, err error) {
	if err := d.run.Holds(ctx, q, lease); err != nil {
		return false, err
	}
	var life sql.NullString
	if err := q.QueryRowContext(ctx, `SELECT @waybill_life`).Scan(&life); err != nil {
		return false, err
	}
	now, err := d.noteLife(ctx, q)
	if err == nil && now != lease.Server {
		err = store.ErrServerChanged
	}
	return life.Valid, err
}

// Level compares the snapshots of positions.
func (*dialect) Level(positions []json.RawMessage) (json.RawMessage, error) {
	var at position
	for lane, raw := range positions {
		p, err := parsePosition(raw)
		switch {
		case err != nil:
			return nil, err
		case p.until != nil:
			return nil, fmt.Errorf("%w: lane %d is within a delta", store.ErrNotLevel, lane)
		case lane == 0:
			at = p
		case !p.from.equal(at.from):
			return nil, fmt.Errorf("%w: lane 0 is at %s, lane %d at %s", store.ErrNotLevel, positions[0], lane, raw)
		}
	}
	return at.MarshalJSON()
}

// Places reads the log's counter after the positions were read: a position beyond it belongs to another
// log.
func (d *dialect) Places(ctx context.Context, q tables.Querier, positions []json.RawMessage) ([]tables.Place, error) {
	places := make([]tables.Place, len(positions))
	next := int64(0)
	for i, raw := range positions {
		pos, err := parsePosition(raw)
		if err != nil {
			return nil, err
		}
		if next == 0 {
			if next, err = d.nextOffset(ctx, q); err != nil {
				return nil, err
			}
		}
		places[i] = tables.Place{Conflict: conflict(pos, next), Through: pos.through(), Settled: pos.settled()}
	}
	return places, nil
}
