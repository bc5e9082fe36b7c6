package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/program/internal/scratch"
)

// tables has all tables of the demo: the outbox's and the shop's.
var tables = scratch.Config{
	Prefix:      "waybill_demo",
	Others:      []string{"_orders", "_customers", "_stock"},
	Connections: 20,
}

// lockKey is the advisory lock that prevents two demos in one database.
const lockKey = 0x77617962696c6c // "waybill"

// database is the database of the shop and its outbox.
type database struct {
	*scratch.Outbox
	name string // for people
	// tills is how many transactions the shop runs at a time.
	tills int
}

// openDatabase opens the database at an address, or creates a SQLite database in folder if the
// address is "". It calls notice with what the demo does to the user's database.
func openDatabase(ctx context.Context, address, folder string, notice func(string)) (*database, error) {
	if address == "" {
		o, err := scratch.OpenSQLite(ctx, filepath.Join(folder, "shop.db"), tables)
		if err != nil {
			return nil, err
		}
		// SQLite has one writer at a time, so a second till would only make the first one wait.
		return &database{Outbox: o, name: "SQLite", tills: 1}, nil
	}
	parsed, err := config.ParseDatabase(address)
	if err != nil {
		return nil, err
	}
	name, open, lock := "PostgreSQL", scratch.OpenPostgres, lockPostgres
	if parsed.Dialect() == config.MySQL {
		name, open, lock = "MySQL", scratch.OpenMySQL, lockMySQL
	}
	o, err := open(ctx, address, tables, func(db *sql.DB) error {
		if err := lock(ctx, db); err != nil {
			return err
		}
		notice("The tables " + tables.Prefix + " and " + tables.Prefix + "_… in this database are dropped, now and\nat the end. No other tables are touched.")
		return tables.Drop(ctx, db) // those of an earlier demo
	})
	if err != nil {
		return nil, err
	}
	return &database{Outbox: o, name: name, tills: 8}, nil
}

// lockPostgres makes sure that this is the only demo in the database. The lock belongs to a connection
// that stays open until the database is closed.
func lockPostgres(ctx context.Context, db *sql.DB) error {
	return lock(ctx, db, `SELECT pg_try_advisory_lock($1)`, int64(lockKey))
}

func lockMySQL(ctx context.Context, db *sql.DB) error {
	return lock(ctx, db, `SELECT GET_LOCK(SHA1(CONCAT(DATABASE(), ?)), 0)`, tables.Prefix)
}

func lock(ctx context.Context, db *sql.DB, query string, arg any) error {
	connection, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	var free bool
	if err := connection.QueryRowContext(ctx, query, arg).Scan(&free); err != nil {
		return errors.Join(fmt.Errorf("lock the database against other demos: %w", err), connection.Close())
	}
	if !free {
		return errors.Join(errors.New("another demo is running in this database: wait until it has ended"), connection.Close())
	}
	return nil
}
