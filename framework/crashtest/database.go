package crashtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// Database is a kind of database server.
type Database string

// The servers. MySQL is MySQL or MariaDB, whichever mysqltest starts.
const (
	PostgreSQL Database = "PostgreSQL"
	MySQL      Database = "MySQL"
)

// dialect is what differs between databases for the harness and its publishers.
type dialect struct {
	// start starts a server that is the harness's own.
	start func(context.Context) (server, error)
	open  func(url string) (*sql.DB, error)
	// migrate makes the outbox's tables and opens it.
	migrate func(context.Context, *sql.DB) (store.Inspector, error)
	// early are the statements that take a transaction's place among the others before it waits for a lock.
	early []string
	// insert publishes an id, a key and a payload.
	insert string
	// count adds to the n of a key, whose row it locks, and returns the sum.
	count func(tx *sql.Tx, key string, n int64) (sum int64, err error)
}

// server is a running database server.
type server interface {
	// create makes an empty database and returns its URL.
	create(context.Context) (string, error)
	// restart ends all of the server's processes at once and starts it again.
	restart(context.Context) error
	// session is the process that serves a connection, if it can be killed without the rest, and the server
	// lets that be noticed; 0: it cannot.
	session(context.Context, *sql.Conn) (pid int, err error)
	stop() error
}

var dialects = map[Database]dialect{PostgreSQL: onPostgreSQL, MySQL: onMySQL}

// dialectOf is that of a database's URL.
func dialectOf(url string) dialect {
	if strings.HasPrefix(url, "postgres") {
		return onPostgreSQL
	}
	return onMySQL
}

// spare leaves out what cannot be noticed on this server.
func (h *harness) spare(ctx context.Context) error {
	session, err := h.db.Conn(ctx)
	if err != nil {
		return err
	}
	pid, err := h.server.session(ctx, session)
	if pid == 0 {
		h.config.Faults = slices.DeleteFunc(slices.Clone(h.config.Faults), func(k Kind) bool { return k == CrashDatabase })
	}
	if len(h.config.Faults) == 0 && err == nil {
		err = fmt.Errorf("%w: Faults has only %q, which this server does not take", ErrConfig, CrashDatabase)
	}
	return errors.Join(err, session.Close())
}

// crashDatabase kills the process of a session and waits until the server has recovered.
func (h *harness) crashDatabase(ctx context.Context) error {
	var session *sql.Conn
	var pid int
	err := retry(ctx, func() (err error) { // the pool's connections may be dead since another fault
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
	defer func() { _ = session.Close() }() // it is dead
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	if err := process.Kill(); err != nil {
		return err
	}
	for session.PingContext(ctx) == nil {
		if !sleep(ctx, time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return retry(ctx, func() error { return h.db.PingContext(ctx) })
}
