package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/waybill-go/waybill/framework/store"
)

// ReplacedError means that the file at the path of a database is no longer the one that is open.
// Nothing is read from either: what is known about the one, such as positions and leases, means
// nothing in the other. Open the database again. It is a [store.ErrReplaced], and a [store.ErrMixed] if
// the write-ahead log of the old file is still there.
type ReplacedError struct {
	Path  string
	Mixed bool
}

func (e *ReplacedError) Error() string {
	text := fmt.Sprintf("%v: %s was removed, or another file was put in its place, while it was open", store.ErrReplaced, e.Path)
	if e.Mixed {
		text += fmt.Sprintf("; %s-wal still belongs to the old file: stop all programs, remove it and %[1]s-shm, and start them again", e.Path)
	}
	return text
}

// Is reports whether target is [store.ErrReplaced] or, if it applies, [store.ErrMixed].
func (e *ReplacedError) Is(target error) bool {
	return target == store.ErrReplaced || e.Mixed && target == store.ErrMixed
}

// replacing is how long it may take to remove or replace a database's files one after the other.
const replacing = 3 * time.Second

// file connects to a database file, as long as it is the one to which it connected first.
type file struct {
	driver.Connector
	path string

	mu          sync.Mutex
	opened, wal os.FileInfo // nil while not known
	mixed       bool        // replaced, and the old write-ahead log stayed
}

// openFile returns a connector for a path.
func openFile(path, dsn string) (*file, error) {
	c, err := sqlite.NewConnector(dsn)
	return &file{Connector: c, path: path}, err
}

// Connect implements driver.Connector.
func (f *file) Connect(ctx context.Context) (driver.Conn, error) {
	if err := f.replaced(); err != nil {
		return nil, err
	}
	before, _ := os.Stat(f.path) // there is none yet for a new database
	conn, err := f.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	noted := f.note(before)
	if err := cmp.Or(f.replaced(), noted); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &session{full: conn.(full), file: f, prepared: prepared{}}, nil
}

// replaced returns a ReplacedError if the file at the path is another one, or none. Before it says that the old
// write-ahead log stayed, it waits for the time of replacing, once: opening the database again beside that log
// would damage it. It counts its own pauses, so that a stop of this process is one of them.
func (f *file) replaced() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.opened == nil {
		return nil
	}
	now, err := os.Stat(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || err == nil && os.SameFile(now, f.opened) {
		return nil // other errors are those of the statement
	}
	const pause = 10 * time.Millisecond
	for waited := time.Duration(0); f.keepsWAL() && !f.mixed; time.Sleep(pause) {
		f.mixed = waited >= replacing
		waited += pause
	}
	return &ReplacedError{Path: f.path, Mixed: f.mixed}
}

// keepsWAL reports whether the write-ahead log at the path is that of the open file.
func (f *file) keepsWAL() bool {
	now, err := os.Stat(f.path + "-wal")
	return err == nil && f.wal != nil && os.SameFile(now, f.wal)
}

// note remembers the files of a connection, unless they were replaced while it was made. before is the file that was
// there before. The log is looked at first: as long as the database is in its place afterwards, so was its log.
func (f *file) note(before os.FileInfo) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	wal, _ := os.Stat(f.path + "-wal") // there is none before the first statement
	now, err := os.Stat(f.path)
	if f.opened == nil {
		f.opened = cmp.Or(before, now)
	}
	if err == nil && os.SameFile(now, f.opened) {
		f.wal = wal
	}
	return err
}

// full is what the driver's connections implement.
type full interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// session is a connection that is not used again once the file was replaced.
type session struct {
	full
	file     *file
	prepared prepared
}

// ResetSession implements driver.SessionResetter: after driver.ErrBadConn database/sql connects again.
func (s *session) ResetSession(ctx context.Context) error {
	if s.file.replaced() != nil {
		return driver.ErrBadConn
	}
	return s.full.ResetSession(ctx)
}
