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

// prefix begins the names of all tables; eight random digits follow.
const prefix = "waybill_bench_"

// orders is the business table, by what follows the prefix.
const orders = "_orders"

// forwarderConnections are those to PostgreSQL beside the clients'.
const forwarderConnections = 10

// database is the outbox of the bench's own, and a business table beside it.
type database struct {
	*scratch.Outbox
	postgres bool
	listens  bool
	// together is how many transactions at a time it can take with profit.
	together int
	batches  int // that were named so far
	remove   func() error
}

func openDatabase(ctx context.Context, c Config, folder string) (d *database, err error) {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // never fails
	tables := scratch.Config{
		Prefix:      prefix + hex.EncodeToString(random),
		Others:      []string{orders},
		Connections: slices.Max(c.Clients) + forwarderConnections,
	}
	listen := true
	if c.Configured != nil {
		tables.Payload, tables.Receipts = postgres.Payload(c.Configured.Outbox.Payload), c.Configured.Outbox.Receipts
		listen = c.Configured.Forwarder.Listen == nil || *c.Configured.Forwarder.Listen
	}
	if c.Database.Dialect() == config.PostgreSQL {
		if listen {
			tables.Listen = c.Database.DSN()
		}
		d = &database{postgres: true, listens: listen, together: 8, remove: func() error { return nil }}
		d.Outbox, err = scratch.OpenPostgres(ctx, c.Database.DSN(), tables, func(db *sql.DB) error { return refuseTaken(ctx, db, tables.Prefix) })
	} else {
		d, err = openSQLite(ctx, c, folder, tables)
	}
	if err != nil {
		return nil, err
	}
	if _, err := d.DB.ExecContext(ctx, `CREATE TABLE `+d.Prefix+orders+` (id TEXT PRIMARY KEY, customer TEXT NOT NULL, quantity BIGINT NOT NULL)`); err != nil {
		return nil, errors.Join(fmt.Errorf("make the business table: %w", err), d.Close())
	}
	return d, nil
}

// openSQLite makes a database of the bench's own: beside the user's, on the same
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

// refuseTaken makes sure that no name that will be made, and removed in the end, is
// in use already.
func refuseTaken(ctx context.Context, db *sql.DB, prefix string) error {
	var taken int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM pg_class WHERE starts_with(relname, $1)`, prefix).Scan(&taken); err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	if taken > 0 {
		return fmt.Errorf("there are tables %s… in the database already, which are not this bench's: run it again for other names", prefix)
	}
	return nil
}

// leftovers are the prefixes of tables that benches left which were killed, or that
// run at the moment.
func (d *database) leftovers(ctx context.Context) (prefixes []string, err error) {
	if !d.postgres {
		return nil, nil
	}
	rows, err := d.DB.QueryContext(ctx, `SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relname ~ $1 AND NOT starts_with(relname, $2) ORDER BY 1`,
		"^"+prefix+"[0-9a-f]{8}$", d.Prefix)
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

// exec runs statements in which outbox stands for the prefix.
func (d *database) exec(ctx context.Context, query string, args ...any) error {
	_, err := d.DB.ExecContext(ctx, d.named(query), args...)
	return err
}

// scan is exec for a query of one row.
func (d *database) scan(ctx context.Context, to any, query string, args ...any) error {
	return d.DB.QueryRowContext(ctx, d.named(query), args...).Scan(to)
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
	return d.exec(ctx, `DELETE FROM outbox; DELETE FROM outbox_orders; `+again)
}

// again has all that is in the log be delivered once more.
const again = `DELETE FROM outbox_cursors; DELETE FROM outbox_parked; DELETE FROM outbox_receipts; DELETE FROM outbox_forwarders`

func (d *database) again(ctx context.Context) error { return d.exec(ctx, again) }

// Close removes what was made.
func (d *database) Close() error { return errors.Join(d.Outbox.Close(), d.remove()) }
