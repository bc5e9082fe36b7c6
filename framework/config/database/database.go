// Package database opens the outbox that a configuration names, in whichever
// database it is. A further dialect is a file like postgres.go and a case in
// dialectOf.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// Database is an outbox that is not looked at yet. It is safe for concurrent use.
type Database struct {
	address config.Database
	dialect dialect
	db      *sql.DB
	source  *kafka.Source // nil: the log is in the database
	standby *sql.DB       // nil: none is read
	logger  *slog.Logger
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
	open(context.Context, *sql.DB, reading) (Store, error)
	// passes says whether an error of open may be over in a while, because no server
	// listens or the server is not ready.
	passes(error) bool
}

// reading says where an opened store reads the log.
type reading struct {
	source  store.Source // nil: in the database
	standby *sql.DB      // of which pages are read; nil: of none
	logger  *slog.Logger // gets what is to be said of the standby
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
	case config.MySQL:
		return mysqlDialect{tables: c.Outbox, mariaDB: isMariaDB(c.Database.DSN())}
	}
	panic(fmt.Sprintf("database: no dialect for %v, which the configuration let pass", c.Database))
}

// Open returns the database that the configuration names. A server is not
// connected to yet; a file has to be there. cleanup ends all connections.
func Open(c config.Tables) (d *Database, cleanup func(), err error) { return open(c, false) }

// Create is Open, except that a file is made where there is none.
func Create(c config.Tables) (d *Database, cleanup func(), err error) { return open(c, true) }

func open(c config.Tables, create bool) (*Database, func(), error) {
	d := &Database{address: c.Database, dialect: dialectOf(c), logger: c.Logger}
	address := c.Database.DSN()
	if own, ok := d.dialect.(postgresDialect); ok && create { // the schema is made where there is none
		address, own.schema = splitSchema(address)
		d.dialect = own
	}
	var err error
	if d.db, err = d.dialect.connect(address, create); err != nil {
		return nil, nil, err
	}
	if c.Log.Kafka != nil {
		source := *c.Log.Kafka
		source.Logger = c.Logger
		if d.source, err = kafka.New(source); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("source: %w", err), d.db.Close())
		}
	}
	if c.Standby.Dialect() != "" {
		if d.standby, err = d.dialect.connect(c.Standby.DSN(), false); err != nil {
			d.close()
			return nil, nil, fmt.Errorf("the standby: %w", err)
		}
	}
	return d, d.close, nil
}

func (d *Database) close() {
	if d.source != nil {
		d.source.Close()
	}
	if d.standby != nil {
		_ = d.standby.Close()
	}
	_ = d.db.Close()
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
		return postgres.Config{}, errors.New("captures are for PostgreSQL only: elsewhere write a trigger of your own that inserts into the outbox")
	}
	return d.config(), nil
}

// Outbox is the configuration of the outbox: of one in PostgreSQL, SQLite or MySQL, and nil of
// the others.
func (d *Database) Outbox() (*postgres.Config, *sqlite.Config, *mysql.Config) {
	var source store.Source
	if d.source != nil {
		source = d.source
	}
	switch o := d.dialect.(type) {
	case postgresDialect:
		c := o.config()
		c.Source = source
		return &c, nil, nil
	case sqliteDialect:
		c := o.config()
		c.Source = source
		return nil, &c, nil
	case mysqlDialect:
		c := o.config()
		c.Source = source
		return nil, nil, &c
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

// Store opens the outbox. It has to be migrated: store.ErrNotMigrated. A source has to be there.
func (d *Database) Store(ctx context.Context) (Store, error) {
	r := reading{standby: d.standby, logger: d.logger}
	if d.source != nil {
		if err := d.source.Open(ctx); err != nil {
			return nil, fmt.Errorf("source: %w", err)
		}
		r.source = d.source
	}
	return d.dialect.open(ctx, d.db, r)
}

// passes says whether an error of Store may be over in a while.
func (d *Database) passes(err error) bool {
	return errors.Is(err, kafka.ErrUnavailable) || d.dialect.passes(err)
}
