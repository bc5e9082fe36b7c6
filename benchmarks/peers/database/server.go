// Package database starts the PostgreSQL of a comparison. Each run gets a separate database:
// a copy of one that was filled before. So every run finds the same tables and the same statistics,
// and no traces of other runs.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"runtime"

	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// settings returns the settings of a started server that differ from PostgreSQL's defaults.
func settings() map[string]string {
	return map[string]string{
		"shared_buffers":     "1GB",
		"max_wal_size":       "4GB", // each copy makes a checkpoint, and none begins during a run
		"checkpoint_timeout": "1h",
		"max_connections":    "200",
	}
}

// fileCopy is the first version with the option STRATEGY for copies of databases.
const fileCopy = 150_000

// Server is a running PostgreSQL. It is not safe for concurrent use.
type Server struct {
	started   *postgrestest.Server
	address   *url.URL
	admin     *sql.DB
	strategy  string
	templates map[string]string
	next      int
}

// Start starts a server with the binaries on this machine. A durable server waits for the disk, as
// measurements need it; without, tests are faster.
func Start(ctx context.Context, durable bool) (_ *Server, err error) {
	s := &Server{templates: make(map[string]string)}
	if s.started, err = postgrestest.Start(ctx, postgrestest.Options{Private: true, Durable: durable, Settings: settings()}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.address, err = url.Parse(s.started.DSN()); err != nil {
		return nil, err
	}
	if s.admin, err = postgres.OpenDB(s.started.DSN()); err != nil {
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

// Close stops the server.
func (s *Server) Close() error {
	var err error
	if s.admin != nil {
		err = s.admin.Close()
	}
	return errors.Join(err, s.started.Stop())
}

// Fill creates the tables of a database and fills them. It must leave no connections open.
type Fill func(ctx context.Context, dsn string) error

// Copy returns a copy of a database that fill has filled, and a function that drops the copy. Calls
// with the same key share the filled database.
func (s *Server) Copy(ctx context.Context, key string, fill Fill) (dsn string, drop func() error, err error) {
	template, err := s.template(ctx, key, fill)
	if err != nil {
		return "", nil, fmt.Errorf("fill a database with %s: %w", key, err)
	}
	name, err := s.create(ctx, " TEMPLATE "+template+s.strategy)
	if err != nil {
		return "", nil, err
	}
	runtime.GC() // so that this run need not collect the garbage of the last one
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

// settle vacuums and analyzes a database, as autovacuum would do later.
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

// Facts returns the server's version and the settings that affect results.
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
