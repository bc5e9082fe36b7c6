// Package sqlite keeps an outbox in an SQLite database, beside the application's tables. Open the file
// with [OpenDB], create the tables with [Migrate], and then [Open] the store.
//
// SQLite has one writer at a time. So the order of offsets is the order of commits, no row appears
// before a visible one later, and a cursor is just an offset. There are no slots either: all rows are
// in slot 0, and one lane does all the work.
//
// Times are stored as RFC 3339 text in UTC with microseconds, such as 2026-01-02T03:04:05.678901Z:
// people can read them, and they sort. SQL producers may write what SQLite's functions return, such as
// CURRENT_TIMESTAMP.
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
	"github.com/waybill-go/waybill/framework/store/internal/tables/acts"
	"github.com/waybill-go/waybill/framework/store/internal/tables/looks"
)

// minVersion is the first SQLite with RETURNING and MATERIALIZED: 3.35 of 2021.
const minVersion = 3_035_000

// Config configures an outbox in a database. The zero value suits most programs.
type Config struct {
	// Prefix is the beginning of all table names; default "outbox".
	Prefix string
	// Receipts archives the receipt of each delivery in the table <prefix>_receipts.
	Receipts bool
	// Source is the log that forwarders read instead of the database's own, which must be empty
	// then; nil means the database's own log. Such a store cannot be published to.
	Source store.Source
}

func (c Config) withDefaults() (Config, error) {
	if c.Prefix == "" {
		c.Prefix = store.DefaultPrefix
	}
	return c, store.ValidatePrefix(c.Prefix)
}

// names is the beginning of the table names. Names are always quoted, since a prefix may be an SQL
// keyword.
type names string

// Log returns the name of the log's table.
func (n names) Log() string { return n.Table("") }

// Table returns the name of a table or an index, such as "outbox_cursors" for cursors; "" stands for
// the log.
func (n names) Table(name string) string {
	if name != "" {
		name = "_" + name
	}
	return `"` + string(n) + name + `"`
}

// Store is an outbox in SQLite. It is safe for concurrent use.
type Store struct {
	*shared
	*acted
	*looked
	db      *sql.DB
	one     *sql.Stmt // the INSERT of one row
	names   names
	run     *tables.Runner
	dialect *dialect
}

// The parts that are the same for all databases.
type (
	shared = tables.Tables
	acted  = acts.Acts
	looked = looks.Looks
)

var _ tables.Roles = (*Store)(nil)

// OpenDB opens the database file, and creates it if it does not exist, with the settings that an
// outbox needs:
//
//   - WAL, so that readers and the writer do not wait for each other;
//   - synchronous=FULL: with NORMAL, a WAL may lose the last commits in a power failure, which a sink
//     may already have received;
//   - transactions take the write lock when they begin, and wait up to ten seconds for it. A
//     transaction that reads first and writes later would fail at once with SQLITE_BUSY if another
//     one wrote in between. Begin read-only ones with sql.TxOptions{ReadOnly: true}: they do not
//     wait.
//
// If the file is removed or replaced by another one, statements fail with a [ReplacedError]: they
// would read and write a file that no one finds any more.
//
// The application uses the same handle for its own tables. A database in memory is refused: each
// connection would have a different one.
func OpenDB(path string) (*sql.DB, error) {
	path = strings.TrimRight(path, "\r\n") // of a variable or a file with the path
	if path == "" || strings.Contains(path, ":memory:") {
		return nil, fmt.Errorf("open SQLite database %q: an outbox needs a file, which all connections share", path)
	}
	// In a URI, these three would end the path or begin an escape.
	escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	f, err := openFile(path, "file:"+escaped+"?_busy_timeout=10000&_journal_mode=WAL&_synchronous=FULL&_txlock=immediate")
	if err != nil {
		return nil, fmt.Errorf("open SQLite database %q: %w", path, err)
	}
	db := sql.OpenDB(f)
	if err := connect(db); err != nil {
		return nil, errors.Join(fmt.Errorf("open SQLite database %q: %w", path, err), db.Close())
	}
	return db, nil
}

// connect makes the first connection. If several processes switch a new file to WAL at once, SQLite
// refuses all but one immediately, whatever the timeout for locks is.
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

// Open checks that the database is migrated for this version of the program, and returns the store. It
// starts and changes nothing. The caller closes db after the last use of the store.
//
// A handle that OpenDB did not open, even of another driver, works if its connections wait for the
// write lock (PRAGMA busy_timeout).
func Open(ctx context.Context, db *sql.DB, c Config) (*Store, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkHandle(ctx, db); err != nil {
		return nil, err
	}
	if err := migrations(c).Check(ctx, db); err != nil {
		return nil, err
	}
	s := &Store{db: db, names: names(c.Prefix)}
	s.dialect = &dialect{Store: s}
	s.run = tables.NewRunner(db, s.names.Table, s.dialect, c.Source)
	s.shared, s.acted, s.looked = tables.New(s.run, c.Receipts), acts.New(s.run), looks.New(s.run)
	if s.one, err = db.PrepareContext(ctx, s.InsertInto()+` (?, ?, ?, ?, ?, ?, ?, ?)`); err != nil {
		return nil, fmt.Errorf("prepare the INSERT of notifications: %w", err)
	}
	return s, s.CheckSource(ctx)
}

// checkHandle refuses an SQLite that is too old, and a handle that is unfit.
func checkHandle(ctx context.Context, db *sql.DB) error {
	var text string
	if err := db.QueryRowContext(ctx, `SELECT sqlite_version()`).Scan(&text); err != nil {
		return fmt.Errorf("connect to SQLite: %w", err)
	}
	var major, minor, patch int
	if _, err := fmt.Sscanf(text, "%d.%d.%d", &major, &minor, &patch); err != nil {
		return fmt.Errorf("%w: SQLite reports the version %q", store.ErrUnsupported, text)
	}
	if major*1_000_000+minor*1000+patch < minVersion {
		return fmt.Errorf("%w: SQLite %s lacks RETURNING; 3.35 or later is needed", store.ErrUnsupported, text)
	}
	return checkSession(ctx, db)
}

// checkSession refuses a handle whose connections take rows that no reader can deliver. No other pragma
// changes what the store's statements mean.
func checkSession(ctx context.Context, db *sql.DB) error {
	var ignores bool
	if err := db.QueryRowContext(ctx, `PRAGMA ignore_check_constraints`).Scan(&ignores); err != nil {
		return fmt.Errorf("look up ignore_check_constraints: %w", err)
	}
	if ignores {
		return fmt.Errorf("%w: the database handle has PRAGMA ignore_check_constraints = on, with which rows that no reader can deliver enter the log: "+
			"turn it off, or open a handle for the outbox with sqlite.OpenDB", store.ErrUnsupported)
	}
	return nil
}
