// Package postgrestest provides a real PostgreSQL for tests, examples and benchmarks.
//
// A test gets a separate, empty database:
//
//	db := postgrestest.New(t)
//
// The server is the first of these that is available: the one that the environment variable
// WAYBILL_TEST_POSTGRES names; a temporary cluster of binaries found on the machine; a temporary
// cluster of binaries fetched once from Maven Central. If none is available, the test fails with an
// explanation; it is never skipped.
//
// A temporary cluster listens on the loopback interface only and accepts every local user without
// a password. It is removed when the process that started it ends, even if that was killed.
package postgrestest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/internal/testserver"
)

// Variable is the environment variable that names a server to use instead of a temporary cluster, by a
// URL. Its user must be allowed to create databases.
const Variable = "WAYBILL_TEST_POSTGRES"

// oldest is the oldest server version that Waybill supports, in the form of server_version_num.
const oldest = 13_00_00

// Errors of Start.
var (
	// ErrNoServer is wrapped if there is neither a server nor binaries to start one. Its text
	// explains what to do.
	ErrNoServer = errors.New("no PostgreSQL to test with")
	// ErrTooOld is wrapped if the server is older than PostgreSQL 13.
	ErrTooOld = errors.New("PostgreSQL is too old")
)

// Errors of Restart, Down, Up, Standby, Promote and Command.
var (
	// ErrNotOurs is returned for a server that Start did not start.
	ErrNotOurs = errors.New("cannot control the server of " + Variable + ", because Start has not started it; set Options.Private for one that it starts")
	// ErrNoProgram is returned by Command if the folder of the server has no such program.
	ErrNoProgram = errors.New("no such program beside the server's")
)

// Options are options of a temporary cluster. They do not apply to a server that the environment
// names.
type Options struct {
	// Durable makes commits wait for the disk, as in production. Benchmarks need that. Otherwise
	// fsync is off: a killed server still loses nothing, but a crash of the machine would lose data.
	Durable bool
	// Private always starts a cluster, even if WAYBILL_TEST_POSTGRES is set, for tests that restart
	// the server or change its settings.
	Private bool
	// Dir is the parent folder of the cluster's temporary folder; "" means the system's.
	// Benchmarks set it if the system's is in memory.
	Dir string
	// Settings are server settings. Defaults: max_connections 200, shared_buffers 256MB, timezone
	// UTC.
	Settings map[string]string
	// Through is a program with arguments that starts the server, and its standbys: env, with variables that change
	// them; default none.
	Through []string
}

// Mode says how Restart and Down stop the server.
type Mode string

const (
	// Fast ends the sessions, rolls back their transactions and shuts down normally.
	Fast Mode = "fast"
	// Immediate ends all processes at once, like a crash; the log is replayed at the next start.
	Immediate Mode = "immediate"
)

// signals are the signals that the server takes for a Mode.
var signals = map[Mode]string{Fast: "INT", Immediate: "QUIT"}

// Server is a running PostgreSQL. It is safe for concurrent use, except for Restart, Down, Up and
// Stop, which must be called alone.
//
// A failover:
//
//	standby, err := primary.Standby(ctx)
//	err = primary.Down(postgrestest.Fast) // Immediate loses what the standby has not received yet
//	err = standby.Promote()
type Server struct {
	address *url.URL
	cluster *cluster // nil for a server that Start did not start
	stop    func() error
}

// Start finds or starts a server, and returns when it accepts connections. Starting a temporary
// cluster takes about a second. Fetching binaries, the first time, downloads 30 MB. ctx applies to
// the start only.
func Start(ctx context.Context, options Options) (*Server, error) {
	server, err := start(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("postgrestest: %w", err)
	}
	if err := server.checkVersion(ctx); err != nil {
		return nil, fmt.Errorf("postgrestest: %w", errors.Join(err, server.Stop()))
	}
	return server, nil
}

func start(ctx context.Context, options Options) (*Server, error) {
	if dsn := os.Getenv(Variable); dsn != "" && !options.Private {
		address, err := url.Parse(dsn)
		if err != nil {
			return nil, fmt.Errorf("%s is not a URL", Variable)
		}
		return &Server{address: address, stop: func() error { return nil }}, nil
	}
	binaries, err := thisMachine().find(ctx)
	if err != nil {
		return nil, err
	}
	cluster, err := startCluster(ctx, binaries, options)
	if err != nil {
		return nil, err
	}
	return &Server{address: address(cluster.Port), cluster: cluster, stop: sync.OnceValue(cluster.Release)}, nil
}

// DSN returns the URL of the server's maintenance database, for lib/pq and for Waybill's
// configuration. Restart, Down and Up do not change it.
func (s *Server) DSN() string { return s.address.String() }

// Stop ends a temporary cluster, including its sessions, and removes its folder. A second call
// returns the result of the first. A server that Start did not start continues to run.
func (s *Server) Stop() error { return s.stop() }

// Restart stops a temporary cluster, starts it again at the same address, and returns when it
// accepts connections. Sessions are lost, committed transactions are not. For a server that Start
// did not start it returns ErrNotOurs.
func (s *Server) Restart(mode Mode) error { return errors.Join(s.Down(mode), s.Up()) }

// Down stops a temporary cluster and keeps its files, so that connections are refused until Up. For
// a server that Start did not start it returns ErrNotOurs.
func (s *Server) Down(mode Mode) error {
	return s.control(func(context.Context) error { return s.cluster.Stop(signals[mode]) })
}

// Up starts a cluster again after Down, at the same address, and returns when it accepts
// connections.
func (s *Server) Up() error {
	return s.control(func(ctx context.Context) error { return s.cluster.Start(ctx) })
}

// Standby copies a running temporary cluster, starts the copy as its streaming standby on another
// port, and returns when that accepts connections for reading and receives what is written. From then
// on Down in mode Fast first sends everything to it. The standby lags slightly behind.
// It has the settings, databases and system identifier of the primary. Promote makes it replace a
// primary that is Down. Stop it like any Server, before or after its primary. For a server that
// Start did not start Standby returns ErrNotOurs; without pg_basebackup, ErrNoProgram.
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	if _, err := s.Command(ctx, basebackup); err != nil {
		return nil, err
	}
	slot := "standby_" + strings.ToLower(rand.Text())
	cluster, err := s.cluster.standby(ctx, slot)
	if err != nil {
		return nil, fmt.Errorf("postgrestest: standby: %w", err)
	}
	standby := &Server{address: address(cluster.Port), cluster: cluster, stop: sync.OnceValue(cluster.Release)}
	if err := s.receives(ctx, slot); err != nil {
		return nil, errors.Join(fmt.Errorf("postgrestest: standby: %w", err), standby.Stop())
	}
	return standby, nil
}

// receives waits until a standby is connected to its replication slot.
func (s *Server) receives(ctx context.Context, slot string) error {
	ctx, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	return with(s.address, func(db *sql.DB) error {
		for ; ; time.Sleep(5 * time.Millisecond) {
			var active bool
			row := db.QueryRowContext(ctx, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", slot)
			if err := row.Scan(&active); active || err != nil {
				return err
			}
		}
	})
}

// Promote makes a Standby a primary, and returns when it accepts writes. It keeps what it had
// received until then.
func (s *Server) Promote() error {
	return s.control(func(ctx context.Context) error {
		return with(s.address, func(db *sql.DB) error {
			promoted := false
			err := db.QueryRowContext(ctx, "SELECT pg_promote()").Scan(&promoted)
			if err == nil && !promoted {
				err = errors.New("the standby did not become a primary in time")
			}
			return err
		})
	})
}

func (s *Server) control(do func(ctx context.Context) error) error {
	if s.cluster == nil {
		return fmt.Errorf("postgrestest: %w", ErrNotOurs)
	}
	ctx, cancel := context.WithTimeout(context.Background(), restartTimeout)
	defer cancel()
	if err := do(ctx); err != nil {
		return fmt.Errorf("postgrestest: %w", err)
	}
	return nil
}

// Command returns a command for a client program of the server's version, such as pg_dump, with the
// server's user and environment. The caller starts it. For a server that Start did not start it
// returns ErrNotOurs; if the binaries do not include the program, ErrNoProgram.
func (s *Server) Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	if s.cluster == nil {
		return nil, fmt.Errorf("postgrestest: %w", ErrNotOurs)
	}
	if _, err := os.Stat(filepath.Join(s.cluster.binaries, name)); err != nil {
		return nil, fmt.Errorf("postgrestest: %w: %w", ErrNoProgram, err)
	}
	return s.cluster.program(ctx, name, args...), nil
}

// CreateDatabase creates an empty database and returns its URL. drop removes it and ends its
// sessions. Without drop it is removed with the cluster; on a server that Start did not start it
// remains.
func (s *Server) CreateDatabase(ctx context.Context) (dsn string, drop func(), err error) {
	name, err := s.createDatabase(ctx, empty)
	if err != nil {
		return "", nil, err
	}
	return withDatabase(s.address, name), func() { _ = s.dropDatabase(name) }, nil
}

// empty is what empty databases are copied from: no session can be connected to it. A session in template1 would
// make the copy fail.
const empty = "template0"

// createDatabase copies a database to which no session is connected.
func (s *Server) createDatabase(ctx context.Context, template string) (name string, err error) {
	name = testserver.DatabaseName()
	if err := s.execute(ctx, "CREATE DATABASE "+pq.QuoteIdentifier(name)+" TEMPLATE "+pq.QuoteIdentifier(template)); err != nil {
		return "", fmt.Errorf("postgrestest: create a database: %w", err)
	}
	return name, nil
}

func (s *Server) dropDatabase(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testserver.DropTimeout)
	defer cancel()
	if err := s.execute(ctx, "DROP DATABASE IF EXISTS "+pq.QuoteIdentifier(name)+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("postgrestest: drop a database: %w", err)
	}
	return nil
}

func (s *Server) checkVersion(ctx context.Context) error {
	return with(s.address, func(db *sql.DB) error {
		var number int
		var name string
		row := db.QueryRowContext(ctx, "SELECT current_setting('server_version_num'), current_setting('server_version')")
		if err := row.Scan(&number, &name); err != nil {
			return fmt.Errorf("connect to %s: %w", s.address.Redacted(), err)
		}
		if number < oldest {
			return fmt.Errorf("%w: %s, but 13 is the oldest that Waybill supports", ErrTooOld, name)
		}
		return nil
	})
}

func (s *Server) execute(ctx context.Context, statement string) error {
	return with(s.address, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, statement)
		return err
	})
}

// with calls do with a connection and closes it afterwards: an idle server has no goroutine of this
// package, so that leak checkers see only those of the test.
func with(address *url.URL, do func(*sql.DB) error) error {
	db, err := sql.Open("postgres", address.String())
	if err != nil {
		return err
	}
	return errors.Join(do(db), db.Close())
}

// withDatabase returns the address of another database on the same server.
func withDatabase(address *url.URL, name string) string {
	other := *address
	other.Path = "/" + name
	query := other.Query()
	query.Del("dbname") // it would override the path
	other.RawQuery = query.Encode()
	return other.String()
}
