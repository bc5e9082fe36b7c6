// Package scratch creates a temporary outbox, in the user's database or in a file, and removes it at the
// end.
package scratch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// removeTimeout limits the removal, which continues after the caller's context is done.
const removeTimeout = 30 * time.Second

// suffixes of the tables that the migrations create, each before those to which it refers.
var suffixes = []string{"_actions", "_inbox", "_cancelled", "_unique", "_schedules", "_receipts", "_parked", "_cursors", "_forwarders", "", "_migrations"}

// Store is what the forwarder, the publisher and a dashboard need of a store.
type Store interface {
	store.Log
	store.Leases
	store.Deliveries
	store.Inspector
	store.Operator
	store.Sampler
	store.Schedules
	outbox.Log
}

// Outbox is a temporary outbox.
type Outbox struct {
	DB    *sql.DB
	Store Store
	// Prefix is the prefix of the tables' names.
	Prefix string

	remove func(context.Context) error
	inTurn bool // whether the database's placeholders have no numbers
}

var placeholder = regexp.MustCompile(`\$\d+`)

// SQL converts a statement with the placeholders $1, $2, … and its arguments for the database.
func (o *Outbox) SQL(query string, args ...any) (string, []any) {
	if !o.inTurn {
		return query, args
	}
	var ordered []any
	return placeholder.ReplaceAllStringFunc(query, func(name string) string {
		n, _ := strconv.Atoi(name[1:]) // always digits
		ordered = append(ordered, args[n-1])
		return "?"
	}), ordered
}

// Config is how to create an outbox.
type Config struct {
	// Prefix is the prefix of all tables' names.
	Prefix string
	// Others are further tables of the program, as names without the prefix, each before those to which
	// it refers. This package does not create them, but removes them.
	Others []string
	// Payload, Receipts and Listen are as in [postgres.Config].
	Payload  postgres.Payload
	Receipts bool
	Listen   string
	// Connections is the maximum number of connections to a server.
	Connections int
}

// OpenSQLite creates a database file. The caller removes its folder.
//
// Everything shares one connection and queues for it. With several connections, one that finds the
// database locked sleeps and tries again, so a busy application starves the forwarder's checkpoints: at
// 300 orders per second, the slowest hundredth of the deliveries takes 20 to 150 ms instead of 8. In
// return, the highest rate is half as high.
func OpenSQLite(ctx context.Context, path string, c Config) (*Outbox, error) {
	db, err := sqlite.OpenDB(path)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	o := &Outbox{DB: db, Prefix: c.Prefix, remove: func(context.Context) error { return nil }}
	own := sqlite.Config{Prefix: c.Prefix, Receipts: c.Receipts}
	if _, err := sqlite.Migrate(ctx, db, own); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	if o.Store, err = sqlite.Open(ctx, db, own); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// OpenPostgres creates the tables of an outbox in a database. It calls prepare first, on the same handle.
// Close removes the tables, and so does OpenPostgres if it fails.
func OpenPostgres(ctx context.Context, address string, c Config, prepare func(*sql.DB) error) (*Outbox, error) {
	db, err := postgres.OpenDB(address)
	if err != nil {
		return nil, err
	}
	o, err := c.on(db, prepare)
	if err != nil {
		return nil, err
	}
	own := postgres.Config{Prefix: c.Prefix, Payload: c.Payload, Receipts: c.Receipts, Listen: c.Listen}
	if _, err := postgres.Migrate(ctx, db, own); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	if o.Store, err = postgres.Open(ctx, db, own); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// OpenMySQL is OpenPostgres for MySQL and MariaDB.
func OpenMySQL(ctx context.Context, address string, c Config, prepare func(*sql.DB) error) (*Outbox, error) {
	db, err := mysql.OpenDB(address)
	if err != nil {
		return nil, err
	}
	o, err := c.on(db, prepare)
	if err != nil {
		return nil, err
	}
	o.inTurn = true
	own := mysql.Config{Prefix: c.Prefix, Receipts: c.Receipts}
	if c.Payload == postgres.PayloadBytes {
		own.Payload = mysql.PayloadBytes
	}
	if _, err := mysql.Migrate(ctx, db, own); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	if o.Store, err = mysql.Open(ctx, db, own); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// on returns an outbox on a server, after calling prepare on the handle.
func (c Config) on(db *sql.DB, prepare func(*sql.DB) error) (*Outbox, error) {
	db.SetMaxOpenConns(c.Connections)
	db.SetMaxIdleConns(c.Connections)
	if err := prepare(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Outbox{DB: db, Prefix: c.Prefix, remove: func(ctx context.Context) error { return c.drop(ctx, db) }}, nil
}

// drop drops the tables and functions of an outbox.
func (c Config) drop(ctx context.Context, db *sql.DB) error {
	var names []string
	for _, suffix := range append(append([]string{}, c.Others...), suffixes...) {
		names = append(names, c.Prefix+suffix)
	}
	if _, err := db.ExecContext(ctx, `DROP TABLE IF EXISTS `+strings.Join(names, ", ")); err != nil {
		return fmt.Errorf("drop the tables %s and %s_…: %w", c.Prefix, c.Prefix, err)
	}
	for _, function := range []string{"_publish", "_cancel", "_first"} {
		if _, err := db.ExecContext(ctx, `DROP FUNCTION IF EXISTS `+c.Prefix+function); err != nil {
			return fmt.Errorf("drop the function %s%s: %w", c.Prefix, function, err)
		}
	}
	return nil
}

// Close removes the tables and closes the database, even if the context of Open is done.
func (o *Outbox) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	return errors.Join(o.remove(ctx), o.DB.Close())
}
