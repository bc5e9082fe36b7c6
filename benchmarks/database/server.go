// Package database is the PostgreSQL that all contenders work on. Each run gets a
// database of its own: a copy, made file by file, of one that was filled before,
// so that every run finds the same tables, the same statistics and no traces of
// others.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime"

	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// settings are those of a server that is started here, over PostgreSQL's own
// defaults.
func settings() map[string]string {
	return map[string]string{
		"shared_buffers":     "1GB",
		"max_wal_size":       "4GB", // with one at each copy, no checkpoint begins within a run
		"checkpoint_timeout": "1h",
		"max_connections":    "200",
	}
}

// fileCopy is the first version in which how a database is copied can be chosen.
const fileCopy = 150_000

// Server is a running PostgreSQL. It is not safe for concurrent use.
type Server struct {
	started   *postgrestest.Server // nil if the server was there before
	address   *url.URL
	admin     *sql.DB
	strategy  string
	templates map[string]string
	next      int
	files     *files
	durable   bool
	mysqls    map[mysqltest.Family]*mysqlServer
}

// Start starts a server of the binaries on this machine, or, where address is not
// empty, uses the one that it names: a URL of a user who may create databases. One
// that is started waits for the disk if it is to be durable, as all that is
// measured must be; without, it makes tests faster.
func Start(ctx context.Context, address string, durable bool) (_ *Server, err error) {
	s := &Server{templates: make(map[string]string), durable: durable, mysqls: make(map[mysqltest.Family]*mysqlServer)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.files, err = newFiles(); err != nil {
		return nil, err
	}
	if address == "" {
		s.started, err = postgrestest.Start(ctx, postgrestest.Options{Private: true, Durable: durable, Settings: settings()})
		if err != nil {
			return nil, err
		}
		address = s.started.DSN()
	}
	if s.address, err = url.Parse(address); err != nil || s.address.Scheme == "" {
		return nil, errors.Join(errors.New("name the database as a URL, such as postgres://me@localhost:5432/postgres"), err)
	}
	if s.admin, err = postgres.OpenDB(address); err != nil {
		return nil, err
	}
	var version int
	if err := s.admin.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&version); err != nil {
		return nil, fmt.Errorf("ask the server for its version: %w", err)
	}
	if version >= fileCopy {
		s.strategy = " STRATEGY file_copy"
	}
	return s, nil
}

// Close drops the filled databases and stops the server if it was started here.
func (s *Server) Close() error {
	var problems []error
	if s.admin != nil {
		if s.started == nil {
			for _, name := range s.templates {
				problems = append(problems, s.drop(context.Background(), name))
			}
		}
		problems = append(problems, s.admin.Close())
	}
	if s.started != nil {
		problems = append(problems, s.started.Stop())
	}
	for _, m := range s.mysqls {
		problems = append(problems, m.Stop())
	}
	if s.files != nil {
		problems = append(problems, os.RemoveAll(s.files.folder))
	}
	return errors.Join(problems...)
}

// Fill makes a database and fills it; it must leave no connections to it.
type Fill func(ctx context.Context, dsn string) error

// Copy returns a database as fill leaves one, and what drops it again. Calls with the
// same key fill once.
func (s *Server) Copy(ctx context.Context, key string, fill Fill) (dsn string, drop func() error, err error) {
	template, err := s.template(ctx, key, fill)
	if err != nil {
		return "", nil, fmt.Errorf("fill a database with %s: %w", key, err)
	}
	name, err := s.create(ctx, " TEMPLATE "+template+s.strategy)
	if err != nil {
		return "", nil, err
	}
	runtime.GC() // what the run before left is not this one's work
	return s.dsn(name), func() error { return s.drop(context.WithoutCancel(ctx), name) }, nil
}

func (s *Server) template(ctx context.Context, key string, fill Fill) (string, error) {
	if name, there := s.templates[key]; there {
		return name, nil
	}
	name, err := s.create(ctx, "")
	if err != nil {
		return "", err
	}
	if err := errors.Join(fill(ctx, s.dsn(name)), s.settle(ctx, s.dsn(name))); err != nil {
		return "", errors.Join(err, s.drop(ctx, name))
	}
	s.templates[key] = name
	return name, nil
}

// settle does what autovacuum would do some time later.
func (s *Server) settle(ctx context.Context, dsn string) error {
	db, err := postgres.OpenDB(dsn)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `VACUUM (ANALYZE)`)
	return errors.Join(err, db.Close())
}

func (s *Server) create(ctx context.Context, how string) (name string, err error) {
	s.next++
	name = fmt.Sprintf("waybill_peers_%d", s.next)
	if err := s.drop(ctx, name); err != nil { // left by an earlier one that was killed
		return "", err
	}
	if _, err := s.admin.ExecContext(ctx, `CREATE DATABASE `+name+how); err != nil {
		return "", fmt.Errorf("create database: %w", err)
	}
	return name, nil
}

func (s *Server) drop(ctx context.Context, name string) error {
	if _, err := s.admin.ExecContext(ctx, `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`); err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return nil
}

func (s *Server) dsn(name string) string {
	address := *s.address
	address.Path = "/" + name
	return address.String()
}

// Facts are the server's version and the settings that matter.
func (s *Server) Facts(ctx context.Context) (version string, settings map[string]string, err error) {
	settings = make(map[string]string)
	rows, err := s.admin.QueryContext(ctx, `SELECT name, current_setting(name) FROM pg_settings WHERE name IN
		('server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'wal_level', 'shared_buffers', 'max_wal_size', 'checkpoint_timeout', 'autovacuum')`)
	if err != nil {
		return "", nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return "", nil, err
		}
		settings[name] = value
	}
	version = settings["server_version"]
	delete(settings, "server_version")
	return version, settings, rows.Err()
}
