package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// prefix begins the names of the outbox's tables.
const prefix = "waybill_demo"

// ownTables are all tables that the demo ever makes, each before those that it
// refers to.
var ownTables = []string{
	prefix + "_orders", prefix + "_customers", prefix + "_stock", // the shop's
	prefix + "_actions", prefix + "_inbox", prefix + "_receipts", prefix + "_parked", prefix + "_cursors", prefix + "_forwarders", prefix, prefix + "_migrations",
}

// lockKey is the advisory lock that keeps two demos in one database apart.
const lockKey = 0x77617962696c6c // "waybill"

// maxConnections is how many the demo opens to PostgreSQL.
const maxConnections = 20

// database is where the shop and its outbox live.
type database struct {
	db    *sql.DB
	store outboxStore
	name  string // for people
	// tills is how many transactions at a time the shop can run with profit.
	tills int
	close func() error
}

// outboxStore is what the forwarder and the publisher need of a dialect.
type outboxStore interface {
	store.Store
	outbox.Log
}

// openDatabase opens the PostgreSQL with that address, or makes a SQLite database
// in folder where there is none. notice tells the user what is done to a database
// of his own.
func openDatabase(ctx context.Context, address, folder string, notice func(string)) (*database, error) {
	if address == "" {
		return openSQLite(ctx, filepath.Join(folder, "shop.db"))
	}
	return openPostgres(ctx, address, notice)
}

// openSQLite makes a database. It has one writer at a time, so a second till would
// only stand in the first one's way.
//
// All share one connection, for which they queue. With several, whoever finds the
// database locked sleeps and tries again, so that a busy shop starves the
// forwarder's checkpoints: at 300 orders a second they cost the slowest hundredth
// of the deliveries 20 to 150 ms instead of 8. The price is the highest rate, which
// is half as high.
func openSQLite(ctx context.Context, path string) (*database, error) {
	db, err := sqlite.OpenDB(path)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	d := &database{db: db, name: "SQLite", tills: 1, close: db.Close}
	c := sqlite.Config{Prefix: prefix}
	if _, err := sqlite.Migrate(ctx, db, c); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if d.store, err = sqlite.Open(ctx, db, c); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return d, nil
}

// openPostgres makes the demo's tables in somebody's database. It drops those that
// an earlier demo left there, and close drops its own.
func openPostgres(ctx context.Context, address string, notice func(string)) (*database, error) {
	db, err := postgres.OpenDB(address)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxConnections)
	d := &database{db: db, name: "PostgreSQL", tills: 8}
	d.close = func() error { return errors.Join(dropOwnTables(context.WithoutCancel(ctx), db), db.Close()) }
	if err := lock(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	notice("The tables " + prefix + " and " + prefix + "_… in this database are dropped, now and\nat the end. No others are touched.")
	if err := dropOwnTables(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	c := postgres.Config{Prefix: prefix}
	if _, err := postgres.Migrate(ctx, db, c); err != nil {
		return nil, errors.Join(err, d.close())
	}
	if d.store, err = postgres.Open(ctx, db, c); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// lock makes sure that this is the database's only demo. The lock belongs to a
// connection that is kept until all are closed.
func lock(ctx context.Context, db *sql.DB) error {
	connection, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	var free bool
	if err := connection.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1)`, int64(lockKey)).Scan(&free); err != nil {
		return errors.Join(fmt.Errorf("lock the database against other demos: %w", err), connection.Close())
	}
	if !free {
		return errors.Join(errors.New("another demo is running in this database: wait for its end"), connection.Close())
	}
	return nil
}

func dropOwnTables(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, `DROP TABLE IF EXISTS `+strings.Join(ownTables, ", ")); err != nil {
		return fmt.Errorf("drop the demo's own tables: %w", err)
	}
	return nil
}
