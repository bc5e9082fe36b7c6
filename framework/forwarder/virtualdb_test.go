package forwarder_test

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"

	sqlitestore "github.com/waybill-go/waybill/framework/store/sqlite"
)

// virtualFile is a database file of SQLite in the time of a bubble, with its own clock and its own lock for
// writers: SQLite would ask the clock of the machine, and wait for a lock in the time of the machine.
type virtualFile struct {
	driver *sqlite.Driver
	dsn    string
	ahead  atomic.Int64  // nanoseconds by which its clock is ahead of the bubble's
	writer chan struct{} // has a value while a transaction writes; made in the bubble
	opened sync.Once
}

// now is the function of SQL that stands in the place of SQLite's 'now'.
const now = "virtual_now()"

// virtualTemplate is an outbox whose columns have their defaults in the time of a bubble, with a table for the
// effects of hooks.
var virtualTemplate = sync.OnceValues(func() (content []byte, err error) {
	folder, err := os.MkdirTemp("", "virtual-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "outbox.db")
	db, err := sqlitestore.OpenDB(path)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // the pragmas are about a connection
	_, err = sqlitestore.Migrate(context.Background(), db, sqlitestore.Config{})
	for _, statement := range []string{
		`CREATE TABLE effects (what text NOT NULL)`,
		`PRAGMA writable_schema = ON`,
		`UPDATE sqlite_master SET sql = replace(sql, '''now''', '` + now + `')`,
	} {
		if err == nil {
			_, err = db.ExecContext(context.Background(), statement)
		}
	}
	if err = errors.Join(err, db.Close()); err != nil { // closing writes everything into the one file
		return nil, err
	}
	return os.ReadFile(path)
})

// newVirtualFile makes an outbox at a path.
func newVirtualFile(path string) (*virtualFile, error) {
	content, err := virtualTemplate()
	if err != nil {
		return nil, err
	}
	f := &virtualFile{
		driver: &sqlite.Driver{},
		dsn:    "file:" + path + "?_busy_timeout=10000&_txlock=immediate&_synchronous=OFF",
	}
	return f, errors.Join(os.WriteFile(path, content, 0o600), f.driver.RegisterScalarFunction(strings.TrimSuffix(now, "()"), 0,
		func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
			return time.Now().Add(time.Duration(f.ahead.Load())).UTC().Format("2006-01-02 15:04:05.000"), nil
		}))
}

// open returns a handle of the file for one process.
func (f *virtualFile) open(v *virtual) *sql.DB {
	f.opened.Do(func() { f.writer = make(chan struct{}, 1) })
	v.file, v.counts = f, make(map[string]int)
	return sql.OpenDB(v)
}

// lockTimeout is how long a writer waits for another one, as in sqlite.OpenDB.
const lockTimeout = 10 * time.Second

var errLocked = errors.New("database is locked (5) (SQLITE_BUSY)")

// patientTime is less than what a forwarder gives any write, its last one too.
const patientTime = 3 * time.Second

func (v *virtual) lock(ctx context.Context) error {
	began := time.Now()
	err := v.file.lock(ctx)
	if err != nil && v.starved != nil && time.Since(began) >= patientTime {
		v.starved()
	}
	return err
}

func (f *virtualFile) lock(ctx context.Context) error {
	select {
	case f.writer <- struct{}{}:
		return nil
	default:
	}
	patience := time.NewTimer(lockTimeout)
	defer patience.Stop()
	select {
	case f.writer <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-patience.C:
		return errLocked
	}
}

func (f *virtualFile) unlock() { <-f.writer }

// virtual is the way of a process to a database file. It counts statements by what they are about, can fail all
// at once, as if the process was killed, and can fail single ones.
type virtual struct {
	file *virtualFile
	dead atomic.Bool
	// disturb, if set, is called before each statement. With an error, the statement is not done. after, if set, is
	// called once it is done; its error is the answer.
	disturb func(ctx context.Context, s statement) (after func() error, err error)
	// starved, if set, is called when a statement was given up because others wrote all the time that it may take.
	starved func()

	mu     sync.Mutex
	counts map[string]int
}

// statement is what a virtual is about to do.
type statement struct {
	kind   kind
	within bool // of a transaction
}

type kind int

const (
	reads kind = iota
	writes
	begins
	commits
)

var errKilled = errors.New("killed")

func (v *virtual) Driver() driver.Driver { return v.file.driver }

func (v *virtual) Connect(ctx context.Context) (driver.Conn, error) {
	if _, err := v.before(ctx, statement{kind: reads}); err != nil {
		return nil, err
	}
	conn, err := v.file.driver.Open(v.file.dsn)
	if err != nil {
		return nil, err
	}
	return &virtualConn{connection: conn.(connection), of: v, prepared: make(map[string]preparedStatement)}, nil
}

// before says whether a statement fails.
func (v *virtual) before(ctx context.Context, s statement) (after func() error, err error) {
	if v.disturb != nil {
		after, err = v.disturb(ctx, s)
	}
	if v.dead.Load() {
		return nil, errKilled
	}
	if after == nil {
		after = func() error { return nil }
	}
	return after, err
}

// about says what a statement of an idle forwarder is about.
func about(query string) string {
	reads := isRead(query)
	switch members, cursors := strings.Contains(query, "outbox_forwarders"), strings.Contains(query, "outbox_cursors"); {
	case strings.Contains(query, "outbox_parked"), strings.Contains(query, "outbox_collections"):
		return "parked"
	case reads && (members || cursors):
		return "leases"
	case members:
		return "heartbeats"
	case cursors:
		return "renewals"
	}
	return "log"
}

func isRead(query string) bool {
	query = strings.TrimSpace(query)
	return (strings.HasPrefix(query, "SELECT") || strings.HasPrefix(query, "WITH")) && !strings.Contains(query, "RETURNING")
}

// connection is what the driver's connections implement.
type connection interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

// preparedStatement is what the driver's statements implement.
type preparedStatement interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// virtualConn is a connection. Like those of the store, it keeps its prepared statements.
type virtualConn struct {
	connection
	of       *virtual
	within   bool // a transaction
	prepared map[string]preparedStatement
}

// prepare counts a statement, and replaces the time of SQLite.
func (c *virtualConn) prepare(ctx context.Context, query string) (preparedStatement, error) {
	c.of.mu.Lock()
	c.of.counts[about(query)]++
	c.of.mu.Unlock()
	if s := c.prepared[query]; s != nil {
		delete(c.prepared, query) // until it is put back
		return s, nil
	}
	s, err := c.connection.PrepareContext(ctx, strings.ReplaceAll(query, "'now'", now))
	if err != nil {
		return nil, err
	}
	return s.(preparedStatement), nil
}

// done puts a statement back for its next use, or closes it.
func (c *virtualConn) done(query string, s preparedStatement, err error) {
	if _, other := c.prepared[query]; other || err != nil || len(c.prepared) > 100 {
		_ = s.Close()
		return
	}
	c.prepared[query] = s
}

// locks takes the lock of writers for a statement outside of a transaction.
func (c *virtualConn) locks(ctx context.Context, s statement) (unlock func(), err error) {
	if s.within || s.kind == reads {
		return func() {}, nil
	}
	return c.of.file.unlock, c.of.lock(ctx)
}

func (c *virtualConn) begin(ctx context.Context, query string) (after func() error, unlock func(), s preparedStatement, err error) {
	about := statement{kind: writes, within: c.within}
	if isRead(query) {
		about.kind = reads
	}
	if after, err = c.of.before(ctx, about); err != nil {
		return nil, nil, nil, err
	}
	if unlock, err = c.locks(ctx, about); err != nil {
		return nil, nil, nil, err
	}
	if s, err = c.prepare(ctx, query); err != nil {
		unlock()
	}
	return after, unlock, s, err
}

func (c *virtualConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	after, unlock, s, err := c.begin(ctx, query)
	if err != nil {
		return nil, err
	}
	defer unlock()
	result, err := s.ExecContext(ctx, args)
	c.done(query, s, err)
	return result, cmp.Or(err, after())
}

func (c *virtualConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	after, unlock, s, err := c.begin(ctx, query)
	if err != nil {
		return nil, err
	}
	rows, err := s.QueryContext(ctx, args)
	if err = cmp.Or(err, after()); err != nil {
		if rows != nil {
			_ = rows.Close()
		}
		c.done(query, s, err)
		unlock()
		return nil, err
	}
	return &virtualRows{virtualColumns: rows.(virtualColumns), end: func(err error) {
		c.done(query, s, err)
		unlock()
	}}, nil
}

// PrepareContext prepares the statement of a publisher, which is used in transactions only.
func (c *virtualConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if c.of.dead.Load() {
		return nil, errKilled
	}
	return c.connection.PrepareContext(ctx, strings.ReplaceAll(query, "'now'", now))
}

func (c *virtualConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	after, err := c.of.before(ctx, statement{kind: begins})
	if err != nil {
		return nil, err
	}
	if options.ReadOnly {
		tx, err := c.connection.BeginTx(ctx, options)
		return &virtualTx{Tx: tx, conn: c, unlock: func() {}}, err
	}
	if err := c.of.lock(ctx); err != nil {
		return nil, err
	}
	tx, err := c.connection.BeginTx(ctx, options)
	if err == nil {
		if err = after(); err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}
	if err != nil {
		c.of.file.unlock()
		return nil, err
	}
	c.within = true
	return &virtualTx{Tx: tx, conn: c, unlock: c.of.file.unlock}, nil
}

func (c *virtualConn) Close() error {
	for _, s := range c.prepared {
		_ = s.Close()
	}
	return c.connection.Close()
}

// virtualTx is a transaction. That of a dead process is rolled back.
type virtualTx struct {
	driver.Tx
	conn   *virtualConn
	unlock func()
}

func (t *virtualTx) Commit() error {
	after, err := t.conn.of.before(context.Background(), statement{kind: commits, within: true})
	if err != nil {
		return errors.Join(err, t.Rollback())
	}
	defer t.end()
	return cmp.Or(t.Tx.Commit(), after())
}

func (t *virtualTx) Rollback() error {
	defer t.end()
	return t.Tx.Rollback()
}

func (t *virtualTx) end() {
	t.conn.within = false
	t.unlock()
}

// virtualColumns is what the driver's rows implement.
type virtualColumns interface {
	driver.Rows
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeLength
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
	driver.RowsColumnTypeScanType
}

type virtualRows struct {
	virtualColumns
	end func(err error)
}

func (r *virtualRows) Close() error {
	err := r.virtualColumns.Close()
	if r.end != nil {
		r.end(err)
		r.end = nil
	}
	return err
}
