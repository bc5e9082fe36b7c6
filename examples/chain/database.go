package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// database has the steps and the outbox, and all that depends on which database it is.
type database struct {
	db     *sql.DB
	outbox *waybill.Outbox
	insert string
	close  func()
}

// open takes the database that an address names; "" is an SQLite file, which close removes.
func open(address string) (d database, err error) {
	d.insert = `INSERT INTO steps VALUES ($1, $2)`
	switch scheme, _, _ := strings.Cut(address, "://"); scheme {
	case "":
		folder, err := os.MkdirTemp("", "chain")
		if err != nil {
			return d, err
		}
		if d.db, err = sqlite.OpenDB(filepath.Join(folder, "shop.db")); err != nil {
			return d, err
		}
		d.outbox = waybill.SQLite(d.db, waybill.SQLiteConfig{})
		d.close = func() { _ = d.db.Close(); _ = os.RemoveAll(folder) }
		return d, nil
	case "postgres", "postgresql":
		d.db, err = postgres.OpenDB(address)
		d.outbox = waybill.Postgres(d.db, waybill.PostgresConfig{})
	case "mysql", "mariadb":
		d.db, err = mysql.OpenDB(address)
		d.outbox = waybill.MySQL(d.db, waybill.MySQLConfig{})
		d.insert = `INSERT INTO steps VALUES (?, ?)`
	default:
		err = fmt.Errorf("DATABASE_URL: %q is neither postgres:// nor mysql://", scheme)
	}
	d.close = func() { _ = d.db.Close() }
	return d, err
}

// write is a step's effect.
func (d database) write(ctx context.Context, tx *sql.Tx, order, step string) error {
	_, err := tx.ExecContext(ctx, d.insert, order, step)
	return err
}

// check counts the steps, of which each order has three, each of them once.
func (d database) check() error {
	var steps, once int
	err := d.db.QueryRow(`SELECT sum(n), count(*) FROM (SELECT count(*) AS n FROM steps GROUP BY customer_order, step) AS counted`).Scan(&steps, &once)
	if err == nil && (steps != 6 || once != 6) {
		err = fmt.Errorf("two orders have %d steps, and %d different ones", steps, once)
	}
	return err
}
