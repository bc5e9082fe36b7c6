package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// database is a handle for the shop and the outbox, and all that depends on whose it is.
type database struct {
	db *sql.DB
	// migrate makes the outbox's tables and opens it.
	migrate func(ctx context.Context, db *sql.DB) (box, error)
	// argument begins what stands for an argument in a statement, and its number follows; "":
	// a question mark does.
	argument string
}

// box is an outbox, with the ids that handlers had.
type box interface {
	forwarder.Store
	outbox.Log
	store.Inbox
}

// connect takes the database that an address names; nothing is connected yet.
func connect(address string) (d database, err error) {
	scheme, _, _ := strings.Cut(address, "://")
	switch scheme {
	case "postgres", "postgresql":
		d = database{migrate: migratePostgres, argument: "$"}
		d.db, err = postgres.OpenDB(address)
	case "mysql", "mariadb":
		d.migrate = migrateMySQL
		d.db, err = mysql.OpenDB(address)
	default:
		err = fmt.Errorf("set DATABASE_URL to a database, such as postgres://me@localhost/shop?sslmode=disable or mysql://me@localhost/shop")
	}
	return d, err
}

func migratePostgres(ctx context.Context, db *sql.DB) (box, error) {
	if _, err := postgres.Migrate(ctx, db, postgres.Config{}); err != nil {
		return nil, err
	}
	return postgres.Open(ctx, db, postgres.Config{})
}

func migrateMySQL(ctx context.Context, db *sql.DB) (box, error) {
	if _, err := mysql.Migrate(ctx, db, mysql.Config{}); err != nil {
		return nil, err
	}
	return mysql.Open(ctx, db, mysql.Config{})
}

// insert stores a row of the shop's.
func (d database) insert(ctx context.Context, tx *sql.Tx, table string, values ...any) error {
	places := make([]string, len(values))
	for i := range places {
		if places[i] = "?"; d.argument != "" {
			places[i] = fmt.Sprint(d.argument, i+1)
		}
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO `+table+` VALUES (`+strings.Join(places, ", ")+`)`, values...)
	return err
}
