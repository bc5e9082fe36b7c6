// Package capture lets triggers of PostgreSQL publish what is written to a table.
package capture

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"
	"unicode/utf8"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/internal/catalog"
)

// Change is a kind of statement that changes rows of a table.
type Change string

// The kinds of changes.
const (
	Insert Change = "insert"
	Update Change = "update"
	Delete Change = "delete"
)

// Changes returns all kinds.
func Changes() []Change { return []Change{Insert, Update, Delete} }

// Capture lets triggers publish the changes of a table, in the transactions that make them, as
// notifications of the types TYPE.inserted, TYPE.updated and TYPE.deleted. The payload has the
// named columns of the row before and after the change as {"before": {…}, "after": {…}}; null
// if the row did not or does not exist.
//
// The triggers run once for each statement, as the role that writes, which needs the privileges
// of a [postgres.Publisher]. An UPDATE that changes none of the named columns publishes nothing. One that
// changes the primary key or the key of a row publishes a deletion and then an insertion.
// TRUNCATE is refused if Delete is captured. Statements that name a partition instead of its
// table are not captured.
type Capture struct {
	// Table is the table's name as in SQL: orders, or sales."Order". It is a table or a
	// partitioned table, with a primary key if Update is captured.
	Table string
	// Key is the column with the notifications' key, which need not be unique; NULL means no key.
	Key string
	// Columns are the columns in the payload, in this order. While they are captured, they
	// cannot be dropped and their types cannot be changed; if one is renamed, writes fail.
	Columns []string
	// Type is the beginning of the types; default: the table's name.
	Type string
	// On are the changes to capture; default: all.
	On []Change
}

// captureWait is how long a change of a capture waits for open transactions on its table.
const captureWait = 2 * time.Second

// Add captures a table, in one transaction that checks all of c first. If the table is
// already captured, the capture is replaced. It must run as the owner of the table. It waits up
// to 2 s for the open transactions on the table; new ones wait behind it meanwhile.
func Add(ctx context.Context, db *sql.DB, outbox postgres.Config, c Capture) error {
	return changeCapture(ctx, db, outbox, c.Table, c.sql)
}

// Remove ends the capture of a table. It needs and waits for the same as [Add].
func Remove(ctx context.Context, db *sql.DB, outbox postgres.Config, table string) error {
	return changeCapture(ctx, db, outbox, table, func(ctx context.Context, t *capturedTable) (string, error) {
		if len(t.Triggers) == 0 {
			return "", errors.New("it is not captured; waybill migrate --captures lists the tables that are")
		}
		return renderCapture("remove", t)
	})
}

// SQL returns the SQL with which [Add] would capture the table now. Run it in one
// transaction. SQL makes the same checks and changes nothing.
func SQL(ctx context.Context, db *sql.DB, outbox postgres.Config, c Capture) (text string, err error) {
	tx, t, err := beginCapture(ctx, db, outbox, c.Table)
	if err == nil {
		defer func() { _ = tx.Rollback() }()
		text, err = c.sql(ctx, t)
	}
	if err != nil {
		return "", fmt.Errorf("capture %s: %w", c.Table, err)
	}
	return text, nil
}

// List returns what is captured into an outbox, by table name. A table that was renamed has
// its new name; a renamed column has its old one.
func List(ctx context.Context, db *sql.DB, outbox postgres.Config) (captures []Capture, err error) {
	n, err := outbox.Names(ctx, db)
	if err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, `SELECT format('%I.%I', s.nspname, c.relname), t.tgargs,
			ARRAY(SELECT o.tgname::text FROM pg_trigger o WHERE o.tgrelid = t.tgrelid AND o.tgfoid = t.tgfoid)
		FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace s ON s.oid = c.relnamespace
		WHERE t.tgname = $1 AND (SELECT nspname FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace WHERE p.oid = t.tgfoid) = $2
		ORDER BY 1`, n.Plain("capture_columns"), n.Schema)
	if err != nil {
		return nil, fmt.Errorf("look for what is captured into %s: %w", n, err)
	}
	defer func() { tables.CloseRows(rows, &err) }()
	for rows.Next() {
		var c Capture
		var arguments []byte
		var triggers []string
		if err := rows.Scan(&c.Table, &arguments, pq.Array(&triggers)); err != nil {
			return nil, err
		}
		// Type, key and columns, each terminated by a NUL.
		if a := strings.Split(string(arguments), "\x00"); len(a) > 3 {
			c.Type, c.Key, c.Columns = a[0], a[1], a[2:len(a)-1]
		}
		for _, change := range Changes() {
			if slices.Contains(triggers, n.Plain("capture_"+string(change))) {
				c.On = append(c.On, change)
			}
		}
		captures = append(captures, c)
	}
	return captures, rows.Err()
}

// capturedTable is what the catalog says about a table. The template uses the exported fields.
type capturedTable struct {
	tx         *sql.Tx
	names      catalog.Names
	id         int64
	Table      string // with its schema, quoted
	plain      string
	kind       string // as pg_class.relkind
	parent     string // its partitioned table, or the table it inherits from
	own        bool   // it belongs to the outbox itself
	columns    []string
	primaryKey []string // empty if it could have duplicates within a transaction
	payload    postgres.Payload
	Triggers   []string // of the present capture
	Functions  []string
}

// changeCapture runs the SQL that write returns for a table, with the table locked.
func changeCapture(ctx context.Context, db *sql.DB, outbox postgres.Config, table string, write func(context.Context, *capturedTable) (string, error)) (err error) {
	defer func() {
		switch {
		case catalog.Refused(err, "55P03"): // lock_not_available
			err = fmt.Errorf("%w: a transaction on the table took longer than %s; try again", err, captureWait)
		case catalog.Refused(err, catalog.DeniedPrivilege):
			err = fmt.Errorf("%w; run it as the owner of the table, with CREATE on the outbox's schema", err)
		}
		if err != nil {
			err = fmt.Errorf("capture %s: %w", table, err)
		}
	}()
	tx, t, err := beginCapture(ctx, db, outbox, table)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %d; LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE`,
		captureWait.Milliseconds(), catalog.IdleTime.Milliseconds(), t.Table)); err != nil {
		return err
	}
	// The table may have changed before it was locked.
	if err := t.look(ctx, t.Table); err != nil {
		return err
	}
	text, err := write(ctx, t)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, text); err != nil {
		return err
	}
	return tx.Commit()
}

// beginCapture looks up a table in a transaction, which the caller must end.
func beginCapture(ctx context.Context, db *sql.DB, outbox postgres.Config, table string) (*sql.Tx, *capturedTable, error) {
	n, err := outbox.Names(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	// READ COMMITTED lets each statement see what another capture did before the lock.
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, nil, err
	}
	t := &capturedTable{tx: tx, names: n}
	if err := t.look(ctx, table); err != nil {
		return nil, nil, errors.Join(err, tx.Rollback())
	}
	return tx, t, nil
}

// look reads what the catalog says about a table.
func (t *capturedTable) look(ctx context.Context, table string) error {
	n := t.names
	own := []string{n.Plain("migrations")}
	for _, name := range catalog.Tables {
		own = append(own, n.Plain(name))
	}
	err := t.tx.QueryRowContext(ctx, `SELECT c.oid::bigint, format('%I.%I', s.nspname, c.relname), c.relname, c.relkind,
			coalesce((SELECT inhparent::regclass::text FROM pg_inherits WHERE inhrelid = c.oid ORDER BY inhseqno LIMIT 1), ''),
			c.relname = ANY ($2) AND s.nspname = $3,
			ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated <> 'v' ORDER BY attnum),
			ARRAY(SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[])
				WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate AND array_position(i.indkey::int2[], a.attnum) < i.indnkeyatts ORDER BY a.attnum),
			(SELECT typname FROM pg_attribute a JOIN pg_type y ON y.oid = atttypid WHERE attrelid = to_regclass($4) AND attname = 'payload'),
			ARRAY(SELECT quote_ident(tgname) FROM pg_trigger `+capturing+`),
			ARRAY(SELECT DISTINCT format('%I.%I', nspname, proname) FROM pg_trigger `+capturing+`)
		FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace WHERE c.oid = to_regclass($1)`,
		table, pq.Array(own), n.Schema, n.Log(), n.Plain("capture_")).
		Scan(&t.id, &t.Table, &t.plain, &t.kind, &t.parent, &t.own, pq.Array(&t.columns), pq.Array(&t.primaryKey), &t.payload, pq.Array(&t.Triggers), pq.Array(&t.Functions))
	if errors.Is(err, sql.ErrNoRows) {
		return errors.New(`there is no such table; write it as in SQL, with its schema if the search path does not find it: sales.orders, or sales."Order"`)
	}
	return err
}

// capturing finds the triggers on a table that an outbox has made.
const capturing = `JOIN pg_proc p ON p.oid = tgfoid JOIN pg_namespace f ON f.oid = pronamespace
	WHERE tgrelid = c.oid AND NOT tgisinternal AND f.nspname = $3 AND starts_with(tgname, $5) AND starts_with(proname, $5)`

//go:embed capture.sql
var captureText string

var captureTemplates = template.Must(template.New("").Parse(captureText))

func renderCapture(name string, data any) (string, error) {
	var b bytes.Buffer
	err := captureTemplates.ExecuteTemplate(&b, name, data)
	return b.String(), err
}

// sql checks the capture against its table, and returns the SQL that makes it.
func (c Capture) sql(ctx context.Context, t *capturedTable) (string, error) {
	if c.Type == "" {
		c.Type = t.plain
	}
	if len(c.On) == 0 {
		c.On = Changes()
	}
	if err := c.check(t); err != nil {
		return "", err
	}
	if err := t.checkWriters(ctx); err != nil {
		return "", err
	}
	identity := []string{c.Key}
	for _, column := range t.primaryKey {
		if column != c.Key {
			identity = append(identity, column)
		}
	}
	text, err := renderCapture("add", captureSQL{capturedTable: t, Capture: c, identity: identity})
	if err == nil && strings.Count(text, dollars) != 2 {
		return "", fmt.Errorf("no name may contain %s", dollars)
	}
	return text, err
}

// dollars are the quotes of the function's body.
const dollars = "$waybill$"

func (c Capture) check(t *capturedTable) error {
	has := "the table has " + strings.Join(t.columns, ", ")
	switch {
	case t.kind != "r" && t.kind != "p":
		return errors.New("it is not a table; name the table that is written to")
	case t.parent != "":
		return fmt.Errorf("it is a part of %s: capture that one", t.parent)
	case t.own:
		return errors.New("it belongs to the outbox, which would capture what it publishes")
	case c.Key == "":
		return fmt.Errorf("name the column with the notifications' key: --key; %s", has)
	case len(c.Columns) == 0:
		return fmt.Errorf("name the columns that the notifications have: --columns; %s", has)
	case !slices.Contains(t.columns, c.Key):
		return fmt.Errorf("the key %q is no column of the table, or a virtual one; %s", c.Key, has)
	}
	for i, column := range c.Columns {
		switch {
		case column == "*":
			return fmt.Errorf("all columns are never captured: name each, since what is added later may be secret; %s", has)
		case !slices.Contains(t.columns, column):
			return fmt.Errorf("%q is no column of the table, or a virtual one; %s", column, has)
		case slices.Contains(c.Columns[:i], column):
			return fmt.Errorf("the column %q is named twice", column)
		}
	}
	for i, change := range c.On {
		if !slices.Contains(Changes(), change) || slices.Contains(c.On[:i], change) {
			return fmt.Errorf("--on has %q: use insert, update and delete, each once", change)
		}
	}
	if slices.Contains(c.On, Update) && len(t.primaryKey) == 0 {
		return errors.New("it has no primary key that holds within a transaction, which is needed to match rows before and after an UPDATE; add one, or capture --on insert,delete")
	}
	return notification.ValidateType(c.Type + ".inserted")
}

// checkWriters refuses a capture that would keep a role from writing the table, because it may
// not publish.
func (t *capturedTable) checkWriters(ctx context.Context) error {
	n := t.names
	var roles []string
	err := t.tx.QueryRowContext(ctx, `SELECT ARRAY(SELECT rolname::text FROM pg_roles r
		WHERE rolname !~ '^pg_' AND (has_any_column_privilege(r.oid, $1::oid, 'INSERT, UPDATE') OR has_table_privilege(r.oid, $1::oid, 'DELETE'))
			AND NOT (has_schema_privilege(r.oid, $2, 'USAGE') AND has_column_privilege(r.oid, $3, 'type', 'INSERT')
				AND has_column_privilege(r.oid, $3, 'key', 'INSERT') AND has_column_privilege(r.oid, $3, 'payload', 'INSERT')
				AND ((SELECT relkind = 'r' FROM pg_class WHERE oid = $3::regclass) OR has_sequence_privilege(r.oid, $4, 'USAGE')))
		ORDER BY 1)`, t.id, n.Schema, n.Log(), n.Table("offset_seq")).Scan(pq.Array(&roles))
	if err != nil || len(roles) == 0 {
		return err
	}
	return fmt.Errorf("roles that write to it may not publish, and could no longer write to it: %s; let each of them publish first: waybill migrate --print-grants %s --for %s",
		strings.Join(roles, ", "), roles[0], postgres.Publisher)
}

// captureSQL is the data of the template.
type captureSQL struct {
	*capturedTable
	Capture
	identity []string
}

// captureRows are the rows of a transition table.
type captureRows struct {
	captureSQL
	From string
}

// Table returns the table's name in the catalog, which may differ from the given one.
func (c captureSQL) Table() string { return c.capturedTable.Table }

func (c captureSQL) Log() string                  { return c.names.Log() }
func (c captureSQL) Rows(from string) captureRows { return captureRows{c, from} }
func (c captureSQL) Trigger(name string) string   { return c.names.Name("capture_" + name) }
func (c captureSQL) Captures(change string) bool  { return slices.Contains(c.On, Change(change)) }
func (c captureSQL) TypeOf(change string) string  { return pq.QuoteLiteral(c.Type + "." + change) }
func (c captureSQL) KeyColumn() string            { return columnOf(c.Key) }
func (c captureSQL) Selected() string             { return joined(c.Columns, columnOf) }
func (c captureSQL) Guarded() string              { return joined(c.guarded(), pq.QuoteIdentifier) }
func (c captureSQL) Arguments() string {
	return joined(append([]string{c.Type, c.Key}, c.Columns...), pq.QuoteLiteral)
}

// Identity returns the columns that identify a row of the table.
func (c captureSQL) Identity() string {
	return `ARRAY[` + joined(c.identity, func(column string) string { return columnOf(column) + `::text` }) + `] COLLATE "C"`
}

// guarded returns all columns that the function names.
func (c captureSQL) guarded() []string {
	columns := slices.Clone(c.Columns)
	for _, column := range c.identity {
		if !slices.Contains(columns, column) {
			columns = append(columns, column)
		}
	}
	return columns
}

// Payload returns an expression with the type of the log's payload column.
func (c captureSQL) Payload(before, after string) string {
	payload := `pg_catalog.json_build_object('before', ` + before + `, 'after', ` + after + `)`
	if c.payload == postgres.PayloadBytes {
		return `pg_catalog.convert_to(` + payload + `::text, 'UTF8')`
	}
	return payload
}

// Function returns the name of the function: unique for the table, the same in each database with
// this table, and beginning with as much of the table's name as fits.
func (c captureSQL) Function() string {
	const most = 63
	sum := fmt.Sprintf("_%x", sha256.Sum256([]byte(c.Table())))[:9]
	name := c.names.Plain("capture_") + c.plain
	name = name[:min(len(name), most-len(sum))]
	for !utf8.ValidString(name) {
		name = name[:len(name)-1]
	}
	return pq.QuoteIdentifier(c.names.Schema) + `.` + pq.QuoteIdentifier(name+sum)
}

func columnOf(column string) string { return `t.` + pq.QuoteIdentifier(column) }

func joined(values []string, form func(string) string) string {
	formed := make([]string, len(values))
	for i, v := range values {
		formed[i] = form(v)
	}
	return strings.Join(formed, ", ")
}

// Faults returns what is wrong with captures: renamed columns, so that each write to the
// table fails, and disabled triggers.
func Faults(ctx context.Context, db *sql.DB, outbox postgres.Config) (captured int, faults []string, err error) {
	captures, err := List(ctx, db, outbox)
	if err != nil {
		return 0, nil, err
	}
	n, err := outbox.Names(ctx, db)
	if err != nil {
		return 0, nil, err
	}
	for _, c := range captures {
		var missing, disabled []string
		err := db.QueryRowContext(ctx, `SELECT
				ARRAY(SELECT u FROM unnest($2::text[]) u WHERE u <> '' AND NOT EXISTS (
					SELECT FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = u AND attnum > 0 AND NOT attisdropped)),
				ARRAY(SELECT tgname::text FROM pg_trigger WHERE tgrelid = to_regclass($1) AND starts_with(tgname, $3) AND tgenabled IN ('D', 'R'))`,
			c.Table, pq.Array(append([]string{c.Key}, c.Columns...)), n.Plain("capture_")).Scan(pq.Array(&missing), pq.Array(&disabled))
		if err != nil {
			return 0, nil, err
		}
		slices.Sort(missing)
		for _, column := range slices.Compact(missing) {
			faults = append(faults, fmt.Sprintf("%s has no column %q any more, so that writes to it fail", c.Table, column))
		}
		if len(disabled) > 0 {
			faults = append(faults, fmt.Sprintf("%d triggers of %s are switched off, so that writes publish nothing", len(disabled), c.Table))
		}
		if len(c.On) == 0 {
			faults = append(faults, c.Table+" has no trigger that publishes")
		}
	}
	return len(captures), faults, nil
}
