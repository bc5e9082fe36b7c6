// Package sqlite keeps an outbox in a SQLite database, beside the application's
// own tables.
//
// SQLite has one writer at a time. So the order of the offsets is the order of
// the commits, a row that is visible has no earlier one still to come, and a
// cursor is nothing but an offset. There are no slots either: all rows are in
// slot 0, and one lane does all the work.
//
// Times are stored as RFC 3339 texts in UTC with microseconds, such as
// 2026-01-02T03:04:05.678901Z: people can read them, and they sort. SQL
// producers may write what SQLite's functions give, such as CURRENT_TIMESTAMP.
//
// The files, in the order in which to read them: migrations/00001_outbox.sql,
// position.go, reader.go, pruning.go, dialect.go; what all databases share is in
// ../internal/tables.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"modernc.org/sqlite" // also the driver of OpenDB
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// minVersion is the first SQLite with RETURNING and MATERIALIZED: 3.35 of 2021.
const minVersion = 3_035_000

// Config names one outbox in a database. The zero value is the usual one.
type Config struct {
	// Prefix begins the names of all tables; default "outbox".
	Prefix string
	// Receipts archives each delivery in the table <prefix>_receipts.
	Receipts bool
	// Source is the log that forwarders read in place of the database's own, which has to be empty
	// then; nil for the database's. Nothing can be published to such a store.
	Source store.Source
}

func (c Config) withDefaults() (Config, error) {
	if c.Prefix == "" {
		c.Prefix = store.DefaultPrefix
	}
	return c, store.ValidatePrefix(c.Prefix)
}

// names are those of the tables: what begins them. All of them are quoted wherever they
// stand, since a prefix may be a word of SQL.
type names string

// Log is the log's table.
func (n names) Log() string { return n.Table("") }

// Table is a table or an index, such as "outbox_cursors" for cursors. The log has no
// name of its own.
func (n names) Table(name string) string {
	if name != "" {
		name = "_" + name
	}
	return `"` + string(n) + name + `"`
}

// Store is an outbox in SQLite. It is safe for concurrent use.
type Store struct {
	*shared
	db      *sql.DB
	names   names
	run     *tables.Runner
	dialect *dialect
}

// shared are the tables that all dialects keep alike.
type shared = tables.Tables

var (
	_ store.Log        = (*Store)(nil)
	_ store.Leases     = (*Store)(nil)
	_ store.Deliveries = (*Store)(nil)
	_ store.Inspector  = (*Store)(nil)
	_ store.Sampler    = (*Store)(nil)
	_ store.Operator   = (*Store)(nil)
	_ store.Pruner     = (*Store)(nil)
	_ store.Inbox      = (*Store)(nil)
	_ store.Reserver   = (*Store)(nil)
	_ store.Schedules  = (*Store)(nil)
	_ store.Canceller  = (*Store)(nil)
	_ store.Claimer    = (*Store)(nil)
	_ store.Diagnoser  = (*Store)(nil)
)

// OpenDB opens the database file, which is made where there is none, with the
// settings that an outbox needs:
//
//   - WAL, so that readers and the writer do not wait for each other;
//   - synchronous=FULL, since a WAL with NORMAL may lose the last commits when
//     the power fails, and a sink may have got what was lost;
//   - transactions take the write lock when they begin, and wait up to ten
//     seconds for it. One that reads first and writes later would fail at once
//     with SQLITE_BUSY if another wrote in between. Begin those that only read
//     with sql.TxOptions{ReadOnly: true}: they wait for no other.
//
// The application uses the same handle for its own tables. A database in memory
// is refused: each connection would see another one.
func OpenDB(path string) (*sql.DB, error) {
	if path == "" || strings.Contains(path, ":memory:") {
		return nil, fmt.Errorf("open SQLite database %q: an outbox is a file, which all connections share", path)
	}
	// In a URI these three would end the path, or begin an escape.
	escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	db, err := sql.Open("sqlite", "file:"+escaped+"?_busy_timeout=10000&_journal_mode=WAL&_synchronous=FULL&_txlock=immediate")
	if err != nil {
		return nil, fmt.Errorf("open SQLite database %q: %w", path, err)
	}
	if err := connect(db); err != nil {
		return nil, errors.Join(fmt.Errorf("open SQLite database %q: %w", path, err), db.Close())
	}
	return db, nil
}

// connect makes the first connection. Of several that turn a new file to WAL at once SQLite
// refuses all but one at once, whatever the timeout for locks is.
func connect(db *sql.DB) error {
	for began := time.Now(); ; time.Sleep(connectPause) {
		err := db.Ping()
		var failed *sqlite.Error
		if !errors.As(err, &failed) || failed.Code()&0xff != sqlite3.SQLITE_BUSY || time.Since(began) > busyTimeout {
			return err
		}
	}
}

const (
	connectPause = 5 * time.Millisecond
	busyTimeout  = 10 * time.Second // as in OpenDB
)

// Open checks that the database is migrated for this version of the program, and
// returns the store. It starts nothing and changes nothing. db stays the
// caller's, to be closed after the last use of the store.
//
// A handle that OpenDB did not open, also of another driver, works if its
// connections wait for the write lock (PRAGMA busy_timeout).
func Open(ctx context.Context, db *sql.DB, c Config) (*Store, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkVersion(ctx, db); err != nil {
		return nil, err
	}
	if err := migrations(c).Check(ctx, db); err != nil {
		return nil, err
	}
	s := &Store{db: db, names: names(c.Prefix)}
	s.dialect = &dialect{Store: s, returning: true}
	s.run = tables.NewRunner(s.names.Table, s.dialect)
	s.shared = tables.New(db, s.run, c.Receipts, c.Source)
	return s, s.CheckSource(ctx)
}

func checkVersion(ctx context.Context, db *sql.DB) error {
	var text string
	if err := db.QueryRowContext(ctx, `SELECT sqlite_version()`).Scan(&text); err != nil {
		return fmt.Errorf("connect to SQLite: %w", err)
	}
	var major, minor, patch int
	if _, err := fmt.Sscanf(text, "%d.%d.%d", &major, &minor, &patch); err != nil {
		return fmt.Errorf("%w: SQLite calls itself version %q", store.ErrUnsupported, text)
	}
	if major*1_000_000+minor*1000+patch < minVersion {
		return fmt.Errorf("%w: SQLite %s lacks RETURNING; 3.35 or later is needed", store.ErrUnsupported, text)
	}
	return nil
}

// closeRows ends a query and keeps the first error.
func closeRows(rows *sql.Rows, err error) error {
	if closeErr := rows.Close(); err == nil {
		return closeErr
	}
	return err
}
