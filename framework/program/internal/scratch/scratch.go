// Package scratch makes an outbox of the program's own, in a database of someone's
// or in a file, and removes it in the end.
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

// removeTimeout bounds the removal, which goes on after the caller's context.
const removeTimeout = 30 * time.Second

// suffixes of the tables that a migration makes, each before those that it refers
// to.
var suffixes = []string{"_actions", "_inbox", "_cancelled", "_unique", "_schedules", "_receipts", "_parked", "_cursors", "_forwarders", "", "_migrations"}

// Store is what the forwarder, the publisher and a dashboard need of a dialect.
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

// Outbox is an outbox of the program's own.
type Outbox struct {
	DB    *sql.DB
	Store Store
	// Prefix begins the names of its tables.
	Prefix string

	remove func(context.Context) error
	inTurn bool // placeholders of the database are not numbered
}

var placeholder = regexp.MustCompile(`\$\d+`)

// SQL is a statement with the placeholders $1, $2, … and its arguments as the database takes
// them.
func (o *Outbox) SQL(query string, args ...any) (string, []any) {
	if !o.inTurn {
		return query, args
	}
	var ordered []any
	return placeholder.ReplaceAllStringFunc(query, func(name string) string {
		n, _ := strconv.Atoi(name[1:]) // digits
		ordered = append(ordered, args[n-1])
		return "?"
	}), ordered
}

// IsMySQL reports whether the database is MySQL or MariaDB.
func (o *Outbox) IsMySQL() bool { return o.inTurn }

// Config says how an outbox is made.
type Config struct {
	// Prefix begins the names of all tables.
	Prefix string
	// Others are further tables of the program's own by what follows the prefix,
	// each before those that it refers to. They are not made, only removed.
	Others []string
	// Payload, Receipts and Listen are as in [postgres.Config].
	Payload  postgres.Payload
	Receipts bool
	Listen   string
	// Connections is how many are opened to a server at most.
	Connections int
}

// OpenSQLite makes a database file, which its folder's owner removes.
//
// All share one connection, for which they queue. With several, a connection that finds the
// database locked sleeps and tries again, so that a busy application starves the
// forwarder's checkpoints: at 300 orders a second they cost the slowest hundredth
// of the deliveries 20 to 150 ms instead of 8. The price is the highest rate, which
// is half as high.
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

// OpenPostgres makes the tables of an outbox in a database. prepare is called
// before, on the same handle; after that they are removed by Close, or where
// OpenPostgres fails.
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

// on is an outbox to be made on a server.
func (c Config) on(db *sql.DB, prepare func(*sql.DB) error) (*Outbox, error) {
	db.SetMaxOpenConns(c.Connections)
	db.SetMaxIdleConns(c.Connections)
	if err := prepare(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Outbox{DB: db, Prefix: c.Prefix, remove: func(ctx context.Context) error { return c.Drop(ctx, db) }}, nil
}

// Drop drops the tables and functions of an outbox, those that there are.
func (c Config) Drop(ctx context.Context, db *sql.DB) error {
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

// Close removes the tables and closes the database, also where the context of Open
// is done.
func (o *Outbox) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	return errors.Join(o.remove(ctx), o.DB.Close())
}
