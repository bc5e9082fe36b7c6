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
	"github.com/waybill-go/waybill/framework/store/postgres"
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
	tables := scratch.Config{
		Prefix:      prefix + hex.EncodeToString(random),
		Others:      []string{orders},
		Connections: slices.Max(c.clients) + forwarderConnections,
	}
	listen := true
	if c.Configured != nil {
		tables.Payload, tables.Receipts = postgres.Payload(c.Configured.Outbox.Payload), c.Configured.Outbox.Receipts
		listen = c.Configured.Forwarder.Listen == nil || *c.Configured.Forwarder.Listen
	}
	switch c.Database.Dialect() {
	case config.PostgreSQL:
		if listen {
			tables.Listen = c.Database.DSN()
		}
		d = &database{postgres: true, listens: listen, together: 8, remove: func() error { return nil }}
		d.Outbox, err = scratch.OpenPostgres(ctx, c.Database.DSN(), tables, func(db *sql.DB) error { return refuseTaken(ctx, db, tables.Prefix) })
	case config.MySQL:
		d = &database{mysql: true, together: 8, remove: func() error { return nil }}
		d.Outbox, err = scratch.OpenMySQL(ctx, c.Database.DSN(), tables, func(db *sql.DB) error { return refuseTakenInMySQL(ctx, db, tables.Prefix) })
	default:
		d, err = openSQLite(ctx, c, folder, tables)
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
func openSQLite(ctx context.Context, c Config, folder string, tables scratch.Config) (*database, error) {
	d := &database{together: 1, remove: func() error { return nil }}
	if c.Database.Dialect() == config.SQLite {
		beside, err := os.MkdirTemp(filepath.Dir(c.Database.DSN()), "waybill-bench-")
		if err != nil {
			return nil, fmt.Errorf("make a folder beside the %s: %w", c.Database, err)
		}
		folder, d.remove = beside, func() error { return os.RemoveAll(beside) }
	}
	var err error
	if d.Outbox, err = scratch.OpenSQLite(ctx, filepath.Join(folder, "bench.db"), tables); err != nil {
		return nil, errors.Join(err, d.remove())
	}
	return d, nil
}

// refuseTaken returns an error if the prefix is in use, because the bench drops its tables at the
// end.
func refuseTaken(ctx context.Context, db *sql.DB, prefix string) error {
	var taken int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM pg_class WHERE starts_with(relname, $1)`, prefix).Scan(&taken); err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	return refuse(taken, prefix)
}

func refuseTakenInMySQL(ctx context.Context, db *sql.DB, prefix string) error {
	var taken int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND LEFT(TABLE_NAME, ?) = ?`, len(prefix), prefix).Scan(&taken); err != nil {
		return fmt.Errorf("connect to MySQL: %w", err)
	}
	return refuse(taken, prefix)
}

func refuse(taken int, prefix string) error {
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
