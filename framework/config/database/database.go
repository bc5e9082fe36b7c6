// Package database opens the outbox that a configuration names, in PostgreSQL, SQLite, MySQL or
// MariaDB:
//
//	d, closeAll, err := database.Open(c.Tables())
//	…
//	store, err := d.Store(ctx)
package database

// To add a dialect, write a file like postgres.go and a case in dialectOf.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// Database is the database of an outbox. It is safe for concurrent use.
type Database struct {
	address config.Database
	dialect dialect
	db      *sql.DB
	source  *kafka.Source // nil if the log is in the database
}

// dialect is what differs between databases.
type dialect interface {
	// connect returns a handle. create allows it to create a database file.
	connect(address string, create bool) (*sql.DB, error)
	// migrate and migrationSQL partition a new log; 0 rows means no partitions.
	migrate(ctx context.Context, db *sql.DB, partitionRows int64) (applied []string, err error)
	migrationSQL(partitionRows int64) (string, error)
	// grants returns the SQL that gives a role the privileges for a duty of postgres.Duties.
	grants(role, duty string) (string, error)
	// open opens a store that reads the log from source, or from the database if source is nil.
	open(ctx context.Context, db *sql.DB, source store.Source) (Store, error)
	// isTemporary reports whether an error of open may go away, because no server listens
	// or the server is not ready.
	isTemporary(error) bool
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
	panic(fmt.Sprintf("database: no dialect for %v, which the configuration accepted", c.Database))
}

// Open returns the database that the configuration names. It does not connect to a server yet. A
// database file must exist. cleanup closes all connections.
func Open(c config.Tables) (d *Database, cleanup func(), err error) { return open(c, false) }

// Create is like Open, and also creates a database file if there is none.
func Create(c config.Tables) (d *Database, cleanup func(), err error) { return open(c, true) }

func open(c config.Tables, create bool) (*Database, func(), error) {
	d := &Database{address: c.Database, dialect: dialectOf(c)}
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
	return d, d.close, nil
}

func (d *Database) close() {
	if d.source != nil {
		d.source.Close()
	}
	_ = d.db.Close()
}

// DB returns the connections to the outbox's database, which the application may use, too.
func (d *Database) DB() *sql.DB { return d.db }

// MigrationSQL returns the SQL that creates the tables in an empty database. partitionRows is as
// for [Database.Migrate].
func MigrationSQL(c config.Tables, partitionRows int64) (string, error) {
	return dialectOf(c).migrationSQL(partitionRows)
}

// Grants returns the SQL that gives a database role the privileges for a duty; see
// [postgres.Duties].
func Grants(c config.Tables, role, duty string) (string, error) {
	return dialectOf(c).grants(role, duty)
}

// PostgreSQL returns the configuration of an outbox in PostgreSQL, for features that other
// databases lack, such as captures. For other databases it returns an error.
func PostgreSQL(c config.Tables) (postgres.Config, error) {
	d, ok := dialectOf(c).(postgresDialect)
	if !ok {
		return postgres.Config{}, errors.New("captures need PostgreSQL: in other databases, write a trigger that inserts into the outbox")
	}
	return d.config(), nil
}

// Outbox returns the configuration of the outbox for its database, PostgreSQL, SQLite or MySQL,
// and nil for the other two.
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

// Migrate creates or upgrades the tables, and returns the names of the migrations that it
// applied. partitionRows is the size of the partitions of a new log, in offsets; 0 means no
// partitions, and only PostgreSQL has them.
func (d *Database) Migrate(ctx context.Context, partitionRows int64) (applied []string, err error) {
	return d.dialect.migrate(ctx, d.db, partitionRows)
}

// Store has all roles of an outbox's store.
type Store interface {
	outbox.Log
	store.Log
	store.Leases
	store.Deliveries
	store.Inspector
	store.Operator
	store.Pruner
	store.Inbox
	store.Schedules
	store.Endpoints
	store.Personal
	store.PrivateKeys
	Unread(ctx context.Context) error
	// Handle returns the database, for transactions of those who get only the store.
	Handle() *sql.DB
}

// Store opens the outbox. It returns [store.ErrNotMigrated] if the tables do not exist, and an
// error if the source of the log cannot be reached.
func (d *Database) Store(ctx context.Context) (Store, error) {
	var source store.Source
	if d.source != nil {
		if err := d.source.Open(ctx); err != nil {
			return nil, fmt.Errorf("source: %w", err)
		}
		source = d.source
	}
	return d.dialect.open(ctx, d.db, source)
}

// IsTemporary reports whether an error of Store may go away by itself, because no server listens or
// the server is not ready.
func (d *Database) IsTemporary(err error) bool {
	return errors.Is(err, kafka.ErrUnavailable) || d.dialect.isTemporary(err)
}
