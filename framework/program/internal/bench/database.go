package bench

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/program/internal/scratch"
)

// prefix is the beginning of the names of all tables; eight random digits follow.
const prefix = "waybill_bench_"

// orders is the name of the business table after the prefix.
const orders = "_orders"

// forwarderConnections is how many connections to a server the forwarder gets, besides the clients'.
const forwarderConnections = 10

// database has the bench's outbox and a business table.
type database struct {
	*scratch.Outbox
	postgres bool
	mysql    bool // or MariaDB
	listens  bool
	// together is the number of clients that publish in latency and sustain.
	together int
	batches  int // how many were named so far
	remove   func() error
}

func openDatabase(ctx context.Context, c Config, folder string) (d *database, err error) {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // never fails
	var tables config.Tables
	listen := true
	if c.Configured != nil {
		tables.Outbox.Payload, tables.Outbox.Receipts = c.Configured.Outbox.Payload, c.Configured.Outbox.Receipts
		listen = c.Configured.Forwarder.Listen == nil || *c.Configured.Forwarder.Listen
	}
	tables.Database, tables.Outbox.Prefix = c.Database, prefix+hex.EncodeToString(random)
	d = &database{together: 8, remove: func() error { return nil }}
	switch c.Database.Dialect() {
	case config.PostgreSQL:
		d.postgres, d.listens, tables.Listen = true, listen, listen
	case config.MySQL:
		d.mysql = true
	}
	if d.postgres || d.mysql {
		d.Outbox, err = scratch.OpenServer(ctx, tables, scratch.Config{
			Others: []string{orders}, Connections: slices.Max(c.clients) + forwarderConnections,
			Prepare: func(db *sql.DB) error { return refuseTaken(ctx, db, tables.Outbox.Prefix, d.mysql) },
		})
	} else {
		d.together = 1
		err = d.openSQLite(ctx, c.Database, folder, tables.Outbox)
	}
	if err != nil {
		return nil, err
	}
	if _, err := d.DB.ExecContext(ctx, `CREATE TABLE `+d.Prefix+orders+` (id VARCHAR(255) PRIMARY KEY, customer VARCHAR(255) NOT NULL, quantity BIGINT NOT NULL)`); err != nil {
		return nil, errors.Join(fmt.Errorf("make the business table: %w", err), d.Close())
	}
	return d, nil
}

// openSQLite creates a database file: in folder, or beside the user's database, and so on the same
// disk, if there is one.
func (d *database) openSQLite(ctx context.Context, own config.Database, folder string, o config.Outbox) (err error) {
	if own.Dialect() == config.SQLite {
		beside, err := os.MkdirTemp(filepath.Dir(own.DSN()), "waybill-bench-")
		if err != nil {
			return fmt.Errorf("make a folder beside the %s: %w", own, err)
		}
		folder, d.remove = beside, func() error { return os.RemoveAll(beside) }
	}
	if d.Outbox, err = scratch.OpenSQLite(ctx, filepath.Join(folder, "bench.db"), o); err != nil {
		return errors.Join(err, d.remove())
	}
	return nil
}

// refuseTaken returns an error if the prefix is in use, because the bench drops its tables at the
// end.
func refuseTaken(ctx context.Context, db *sql.DB, prefix string, mysql bool) error {
	server, query := "PostgreSQL", `SELECT count(*) FROM pg_class WHERE starts_with(relname, $1)`
	if mysql {
		server, query = "MySQL", `SELECT count(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND LOCATE(?, TABLE_NAME) = 1`
	}
	var taken int
	if err := db.QueryRowContext(ctx, query, prefix).Scan(&taken); err != nil {
		return fmt.Errorf("connect to %s: %w", server, err)
	}
	if taken > 0 {
		return fmt.Errorf("the database already has tables %s…: run the bench again, which then chooses another name", prefix)
	}
	return nil
}

// leftovers returns the prefixes of other benches' tables: of benches that are running, and of
// benches that were killed.
func (d *database) leftovers(ctx context.Context) (prefixes []string, err error) {
	query := `SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relname ~ $1 AND NOT starts_with(relname, $2) ORDER BY 1`
	switch {
	case d.mysql:
		query = `SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME REGEXP $1 AND TABLE_NAME <> $2 ORDER BY 1`
	case !d.postgres:
		return nil, nil
	}
	query, args := d.SQL(query, "^"+prefix+"[0-9a-f]{8}$", d.Prefix)
	rows, err := d.DB.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		prefixes = append(prefixes, name)
	}
	return prefixes, rows.Err()
}

// exec runs a statement in which outbox stands for the prefix.
func (d *database) exec(ctx context.Context, query string, args ...any) error {
	query, args = d.SQL(d.named(query), args...)
	_, err := d.DB.ExecContext(ctx, query, args...)
	return err
}

// scan is exec for a query of one row.
func (d *database) scan(ctx context.Context, to any, query string, args ...any) error {
	query, args = d.SQL(d.named(query), args...)
	return d.DB.QueryRowContext(ctx, query, args...).Scan(to)
}

func (d *database) named(query string) string { return strings.ReplaceAll(query, "outbox", d.Prefix) }

// newBatch names the notifications of the next run.
func (d *database) newBatch() batch {
	d.batches++
	return batch{tag: fmt.Sprintf("%s-%d-", strings.TrimPrefix(d.Prefix, prefix), d.batches)}
}

// empty removes all rows.
func (d *database) empty(ctx context.Context) error {
	if d.postgres {
		return d.exec(ctx, `TRUNCATE outbox, outbox_cursors, outbox_parked, outbox_receipts, outbox_forwarders, outbox_orders`)
	}
	for _, table := range []string{"outbox", "outbox_orders", "outbox_cursors", "outbox_parked", "outbox_receipts", "outbox_forwarders"} {
		statement := `DELETE FROM ` + table
		if d.mysql && (table == "outbox" || table == "outbox_orders") { // the large ones
			statement = `TRUNCATE TABLE ` + table
		}
		if err := d.exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// Close removes what openDatabase has created.
func (d *database) Close() error { return errors.Join(d.Outbox.Close(), d.remove()) }
