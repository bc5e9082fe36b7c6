package crashtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store"
)

// Database is a kind of database server.
type Database string

// The kinds. MySQL stands for MySQL or MariaDB, depending on which one mysqltest starts.
const (
	PostgreSQL Database = "PostgreSQL"
	MySQL      Database = "MySQL"
)

// dialect is the difference between databases for the harness and its publishers.
type dialect struct {
	// start starts a server for this harness.
	start func(context.Context) (server, error)
	open  func(url string) (*sql.DB, error)
	// migrate creates the tables of the outbox and opens it.
	migrate func(context.Context, *sql.DB) (store.Inspector, error)
	// early are statements that give a transaction its id or an offset before it waits for a lock.
	early []string
	// insert is a statement that publishes a row with these columns.
	insert func(columns []string) string
	// lastID returns the id of the session's last notification.
	lastID string
	// note writes the name of a transaction and its records to crash_log.
	note string
	// zone is what a time in UTC ends with.
	zone string
	// cancel cancels the scheduled notification $id.
	cancel string
	// count adds n to the row of a key, which it locks, and returns the sum.
	count func(c *sql.Conn, key string, n int64) (sum int64, err error)

	onePhase, twoPhases phases
	// listPrepared returns the prepared transactions as XA RECOVER does, with their ids in the last of four columns.
	listPrepared string
}

// phases are the statements of a transaction named $id.
type phases struct{ begin, prepare, commit, rollback []string }

var onePhase = phases{begin: []string{`BEGIN`}, commit: []string{`COMMIT`}, rollback: []string{`ROLLBACK`}}

// server is a running database server.
type server interface {
	// create creates an empty database and returns its URL.
	create(context.Context) (string, error)
	// restart ends all processes of the server at once and starts it again.
	restart(context.Context) error
	// session returns the process that serves a connection. It returns 0 if that process cannot be
	// killed alone, or the server does not show that it was.
	session(context.Context, *sql.Conn) (pid int, err error)
	// endSessions ends all sessions of a database but its own.
	endSessions(context.Context, *sql.DB) error
	// other returns the process that serves any other session of a database.
	other(context.Context, *sql.DB) (pid int, err error)
	// failOver replaces the server by its standby, and returns the address of that.
	failOver(context.Context) (dsn string, err error)
	setClock(offset time.Duration) error
	// suffers reports whether the server knows a kind of fault.
	suffers(Kind) bool
	Stop() error
}

var dialects = map[Database]dialect{PostgreSQL: onPostgreSQL, MySQL: onMySQL}

// dialectOf returns the dialect of a database's URL.
func dialectOf(url string) dialect {
	if strings.HasPrefix(url, "postgres") {
		return onPostgreSQL
	}
	return onMySQL
}

// refused reports whether a server refused what a statement wrote.
func refused(err error) bool {
	var other *driver.MySQLError
	var coded interface{ SQLState() string }
	state := ""
	switch {
	case errors.As(err, &other) && other.Number == violatedCheck:
		return true
	case errors.As(err, &other):
		state = string(other.SQLState[:])
	case errors.As(err, &coded):
		state = coded.SQLState()
	}
	return strings.HasPrefix(state, "22") || strings.HasPrefix(state, "23")
}

// violatedCheck is an error of MySQL without a separate state.
const violatedCheck = 3819

// spare removes the faults that cannot happen here.
func (h *harness) spare(ctx context.Context) error {
	session, err := h.db.Conn(ctx)
	if err != nil {
		return err
	}
	pid, err := h.server.session(ctx, session)
	asked := h.config.Faults
	h.config.Faults = slices.DeleteFunc(slices.Clone(asked), func(k Kind) bool {
		switch k {
		case CrashDatabase:
			return pid == 0
		case StopSession, FailOver, SetClock:
			return !h.server.suffers(k)
		case FailStep:
			return len(h.config.Steps) == 0
		case PersonActs:
			return len(h.config.Acts) == 0
		case Reload:
			return h.config.Reload == nil
		}
		return false
	})
	if len(h.config.Faults) == 0 && err == nil {
		err = fmt.Errorf("%w: Faults has only %q, which cannot happen here", ErrConfig, asked)
	}
	return errors.Join(err, session.Close())
}

// crashDatabase kills the process of a session, and waits until the server has recovered.
func (h *harness) crashDatabase(ctx context.Context) error {
	var session *sql.Conn
	var pid int
	err := retry(ctx, func() (err error) { // connections in the pool may be dead after another fault
		if session, err = h.db.Conn(ctx); err != nil {
			return err
		}
		if pid, err = h.server.session(ctx, session); err != nil {
			_ = session.Close()
		}
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }() // the connection is dead
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	if err := process.Kill(); err != nil {
		return err
	}
	for session.PingContext(ctx) == nil {
		if !pace.Sleep(ctx, time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return retry(ctx, func() error { return h.db.PingContext(ctx) })
}

// stopSession stops the process of a session for a while.
func (h *harness) stopSession(ctx context.Context, s step) error {
	var pid int
	if err := retry(ctx, func() (err error) { pid, err = h.server.other(ctx, h.db); return err }); err != nil {
		return err
	}
	stopped, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	if err := stopped.Signal(syscall.SIGSTOP); err != nil {
		return nil // it has just ended
	}
	pace.Sleep(ctx, s.length)
	_ = stopped.Signal(syscall.SIGCONT) // the server may have ended it
	return nil
}

// failOver moves the addresses of the database to the server that replaces it.
func (h *harness) failOver(ctx context.Context) error {
	dsn, err := h.server.failOver(ctx)
	if err != nil {
		return err
	}
	links := []*link{h.front}
	for _, f := range h.forwarders {
		links = append(links, f.toDatabase)
	}
	for _, l := range links {
		if err := l.Retarget(dsn); err != nil {
			return err
		}
		l.Sever()
	}
	return retry(ctx, func() error { return h.db.PingContext(ctx) })
}
