// Package database opens the outbox that a configuration names, in whichever
// database it is. A further dialect is a file like postgres.go and a case in
// dialectOf.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// Database is an outbox that is not looked at yet. It is safe for concurrent use.
type Database struct {
	address config.Database
	dialect dialect
	db      *sql.DB
}

// dialect is what differs between databases.
type dialect interface {
	// connect returns a handle. A database in a file is made only if create says so.
	connect(address string, create bool) (*sql.DB, error)
	// migrate and migrationSQL cut a new log into partitions; 0 rows: into none.
	migrate(ctx context.Context, db *sql.DB, partitionRows int64) (applied []string, err error)
	migrationSQL(partitionRows int64) (string, error)
	// grants gives a role what it needs for a duty of postgres.Duties.
	grants(role, duty string) (string, error)
	open(context.Context, *sql.DB) (Store, error)
	// passes says whether an error of open may be over in a while, because no server
	// listens or the server is not ready.
	passes(error) bool
}

func dialectOf(c config.Tables) dialect {
	switch c.Database.Dialect() {
	case config.PostgreSQL:
		o := postgresDialect{tables: c.Outbox}
		if c.Listen {
			o.listen = c.Database.DSN()
		}
		return o
	case config.SQLite:
		return sqliteDialect(c.Outbox)
	}
	panic(fmt.Sprintf("database: no dialect for %v, which the configuration let pass", c.Database))
}

// Open returns the database that the configuration names. A server is not
// connected to yet; a file has to be there. cleanup ends all connections.
func Open(c config.Tables) (d *Database, cleanup func(), err error) { return open(c, false) }

// Create is Open, except that a file is made where there is none.
func Create(c config.Tables) (d *Database, cleanup func(), err error) { return open(c, true) }

func open(c config.Tables, create bool) (*Database, func(), error) {
	d := &Database{address: c.Database, dialect: dialectOf(c)}
	var err error
	if d.db, err = d.dialect.connect(c.Database.DSN(), create); err != nil {
		return nil, nil, err
	}
	return d, func() { _ = d.db.Close() }, nil
}

// DB is what the outbox is reached through, for the application's own statements too.
func (d *Database) DB() *sql.DB { return d.db }

// MigrationSQL is the SQL that makes the tables in an empty database.
func MigrationSQL(c config.Tables, partitionRows int64) (string, error) {
	return dialectOf(c).migrationSQL(partitionRows)
}

// Grants is the SQL that gives a role of the database what it needs for a duty.
func Grants(c config.Tables, role, duty string) (string, error) {
	return dialectOf(c).grants(role, duty)
}

// PostgreSQL is the configuration of an outbox in PostgreSQL, for what no other database
// has, such as captures; or an error that says so.
func PostgreSQL(c config.Tables) (postgres.Config, error) {
	d, ok := dialectOf(c).(postgresDialect)
	if !ok {
		return postgres.Config{}, errors.New("captures are for PostgreSQL only: in SQLite write a trigger of your own that inserts into the outbox")
	}
	return d.config(), nil
}

// Outbox is the configuration of the outbox: of one in PostgreSQL or of one in SQLite, and
// nil of the other.
func (d *Database) Outbox() (*postgres.Config, *sqlite.Config) {
	switch d := d.dialect.(type) {
	case postgresDialect:
		return new(d.config()), nil
	case sqliteDialect:
		return nil, new(d.config())
	}
	panic(fmt.Sprintf("database: no configuration of a %T", d.dialect))
}

// Migrate makes and upgrades the tables and returns the names of the migrations
// that it applied. A new log is cut into partitions of that many offsets, 0 for
// none.
func (d *Database) Migrate(ctx context.Context, partitionRows int64) (applied []string, err error) {
	return d.dialect.migrate(ctx, d.db, partitionRows)
}

// Store is an outbox, with all that commands ask of it.
type Store interface {
	outbox.Log
	store.Log
	store.Leases
	store.Deliveries
	store.Inspector
	store.Sampler
	store.Operator
	store.Pruner
	store.Inbox
	store.Schedules
}

// Store opens the outbox. It has to be migrated: store.ErrNotMigrated.
func (d *Database) Store(ctx context.Context) (Store, error) {
	return d.dialect.open(ctx, d.db)
}
