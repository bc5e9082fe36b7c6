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

// database holds the steps of the orders and the outbox.
type database struct {
	db     *sql.DB
	outbox *waybill.Outbox
	insert string // the INSERT of one step, in the SQL of this database
	close  func()
}

// open opens the database at an address. If the address is empty, it creates a temporary SQLite
// file, which close removes.
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

// addStep stores a step of an order: the effect of a handler.
func (d database) addStep(ctx context.Context, tx *sql.Tx, order, step string) error {
	_, err := tx.ExecContext(ctx, d.insert, order, step)
	return err
}

// check returns an error unless both orders have their three steps, each of them once.
func (d database) check() error {
	var steps, distinct int
	err := d.db.QueryRow(`SELECT sum(n), count(*) FROM (SELECT count(*) AS n FROM steps GROUP BY customer_order, step) AS counted`).Scan(&steps, &distinct)
	if err == nil && (steps != 6 || distinct != 6) {
		err = fmt.Errorf("the two orders have %d steps, %d of them distinct; want 6 and 6", steps, distinct)
	}
	return err
}
