// Package postgrestest gives tests, examples and benchmarks a real PostgreSQL.
//
// A test asks for a fresh, empty database of its own and says no more:
//
//	db := postgrestest.New(t)
//
// The server behind it is, in this order: the one that the environment variable
// WAYBILL_TEST_POSTGRES names; a throwaway cluster of the binaries found on the
// machine; the same of binaries fetched once from Maven Central. Where none of
// them works the test fails and says how to mend it; it is never skipped.
//
// A throwaway cluster listens on the loopback interface only and lets every
// local user in without a password. It is gone when the process that started it
// is, even when that was killed.
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
)

// Variable is the environment variable that names a server to use instead of a
// throwaway cluster: a URL or a key=value string as lib/pq takes them. Its user
// must be allowed to create databases.
const Variable = "WAYBILL_TEST_POSTGRES"

// oldest is the first server version that Waybill supports, as in
// server_version_num.
const oldest = 13_00_00

// dropTimeout bounds the removal of a database, which has no caller's context.
const dropTimeout = 30 * time.Second

// Options of a throwaway cluster. A server that the environment names is used as
// it is, whatever stands here.
type Options struct {
	// Durable makes commits wait for the disk, as in production; benchmarks want
	// that. Without it fsync is off: a killed server still loses nothing, only a
	// crash of the whole machine would.
	Durable bool
	// Private asks for a cluster of one's own even where WAYBILL_TEST_POSTGRES is
	// set: for tests that restart the server or change its settings.
	Private bool
	// Dir is the folder in which the cluster's temporary folder is made. Empty
	// means the system's. Benchmarks set it where that one is memory.
	Dir string
	// Settings are server settings, over these defaults: max_connections 200,
	// shared_buffers 256MB, timezone UTC.
	Settings map[string]string
}

// Mode says how Restart and Down stop the server.
type Mode string

const (
	// Fast ends the sessions, rolls their transactions back and shuts down in order.
	Fast Mode = "fast"
	// Immediate ends all processes at once, as a crash does; the log is replayed
	// at the next start.
	Immediate Mode = "immediate"
)

// Server is a running PostgreSQL. It is safe for concurrent use, except that
// nothing may run beside Restart, Down, Up and Stop.
//
// A failover takes three lines:
//
//	standby, err := primary.Standby(ctx)
//	err = primary.Down(postgrestest.Fast) // Immediate loses what the standby does not have yet
//	err = standby.Promote()
type Server struct {
	address *url.URL
	cluster *cluster // nil for a server that Start only found
	stop    func() error
}

// Start finds or starts a server and returns once it takes connections. Starting
// a throwaway cluster takes about a second; fetching binaries, the first time,
// as long as 30 MB take. ctx bounds the start, not the server's life.
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
		address, err := parseDSN(dsn)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Variable, err)
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
	return &Server{address: cluster.address(), cluster: cluster, stop: sync.OnceValue(cluster.stop)}, nil
}

// DSN is the URL of the server's maintenance database, for lib/pq and for
// Waybill's configuration. It stays the same over a Restart, a Down
// and an Up.
func (s *Server) DSN() string { return s.address.String() }

// Stop ends a throwaway cluster, its sessions included, and removes its folder.
// A second call returns what the first did; a server that Start only found is
// left alone.
func (s *Server) Stop() error { return s.stop() }

// Restart stops a throwaway cluster in the given mode, starts it again at the
// same address and returns once it takes connections. Sessions are lost;
// committed transactions are not. ErrNotOurs for a server that Start only found.
func (s *Server) Restart(mode Mode) error {
	return s.control("restart", "--mode", string(mode)) // with the options of the first start, the port among them
}

// Down stops a throwaway cluster in the given mode and keeps its files, so that
// connecting is refused until Up. ErrNotOurs for a server that Start only found.
func (s *Server) Down(mode Mode) error {
	return s.control("stop", "--mode", string(mode))
}

// Up starts a cluster again that is Down, at the same address, and returns once it
// takes connections.
func (s *Server) Up() error {
	if s.cluster == nil {
		return fmt.Errorf("postgrestest: %w", ErrNotOurs)
	}
	return s.control("start", s.cluster.portOption()...)
}

// Standby copies a running throwaway cluster and starts the copy as its streaming
// standby, on a port of its own, and returns once that takes connections for
// reading. It follows a moment behind: Promote takes the place of a primary that is
// Down. It has the primary's settings, databases and system identifier, is to be
// stopped like any Server, and may be stopped before or after its primary.
// ErrNotOurs for a server that Start only found; ErrNoProgram without
// pg_basebackup.
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	if _, err := s.Command(ctx, basebackup); err != nil {
		return nil, err
	}
	cluster, err := s.cluster.standby(ctx)
	if err != nil {
		return nil, fmt.Errorf("postgrestest: standby: %w", err)
	}
	return &Server{address: cluster.address(), cluster: cluster, stop: sync.OnceValue(cluster.stop)}, nil
}

// Promote turns a Standby into a primary and returns once it takes writes. What it
// had received until then stays.
func (s *Server) Promote() error { return s.control("promote") }

func (s *Server) control(action string, args ...string) error {
	if s.cluster == nil {
		return fmt.Errorf("postgrestest: %w", ErrNotOurs)
	}
	ctx, cancel := context.WithTimeout(context.Background(), restartTimeout)
	defer cancel()
	if err := s.cluster.control(ctx, action, args...); err != nil {
		return fmt.Errorf("postgrestest: %w", err)
	}
	return nil
}

// Command is a client program of the server's version, such as pg_dump, to be
// started by the caller with the server's user and environment. ErrNotOurs for a
// server that Start only found; ErrNoProgram where the binaries came without it.
func (s *Server) Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	if s.cluster == nil {
		return nil, fmt.Errorf("postgrestest: %w", ErrNotOurs)
	}
	if _, err := os.Stat(filepath.Join(s.cluster.binaries, program(name))); err != nil {
		return nil, fmt.Errorf("postgrestest: %w: %w", ErrNoProgram, err)
	}
	return s.cluster.command(ctx, name, args...), nil
}

// CreateDatabase makes an empty database and returns its URL. drop removes it,
// ending the sessions that are still in it; without a call it goes with the
// cluster, but stays on a server that Start only found.
func (s *Server) CreateDatabase(ctx context.Context) (dsn string, drop func(), err error) {
	name, err := s.createDatabase(ctx)
	if err != nil {
		return "", nil, err
	}
	return withDatabase(s.address, name), func() { _ = s.dropDatabase(name) }, nil
}

// createDatabase copies template0, since no session can be connected to that one: a
// session in template1 would make the copy fail.
func (s *Server) createDatabase(ctx context.Context) (name string, err error) {
	name = "waybill_" + strings.ToLower(rand.Text()) // psql folds what is not quoted
	if err := s.execute(ctx, "CREATE DATABASE "+pq.QuoteIdentifier(name)+" TEMPLATE template0"); err != nil {
		return "", fmt.Errorf("postgrestest: create a database: %w", err)
	}
	return name, nil
}

func (s *Server) dropDatabase(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	if err := s.execute(ctx, "DROP DATABASE IF EXISTS "+pq.QuoteIdentifier(name)+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("postgrestest: drop a database: %w", err)
	}
	return nil
}

func (s *Server) checkVersion(ctx context.Context) error {
	return s.with(func(db *sql.DB) error {
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
	return s.with(func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, statement)
		return err
	})
}

// with lends a connection for one task. None is kept: an idle server has no
// goroutine of this package in the process, so leak checkers see only the
// test's own.
func (s *Server) with(do func(*sql.DB) error) error {
	db, err := sql.Open("postgres", s.DSN())
	if err != nil {
		return err
	}
	return errors.Join(do(db), db.Close())
}
