package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"time"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// Limits of the connections to a server. Few are enough, because a statement takes about a
// millisecond and none is held while a sink is called. Idle ones are kept, because lanes need
// them again soon.
const (
	maxConnections = 10
	maxIdleTime    = 5 * time.Minute
)

type postgresDialect struct {
	tables config.Outbox
	listen string // address on which the store listens; "" for none
	schema string // of the tables; "": that of the prefix, or of the search path
}

var _ dialect = postgresDialect{}

func (o postgresDialect) config() postgres.Config {
	return postgres.Config{
		Prefix:   o.tables.Prefix,
		Payload:  postgres.Payload(o.tables.Payload),
		Receipts: o.tables.Receipts,
		Listen:   o.listen,
		Schema:   o.schema,
	}
}

func (o postgresDialect) connect(dsn string, _ bool) (*sql.DB, error) {
	db, err := postgres.OpenDB(dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxConnections)
	db.SetConnMaxIdleTime(maxIdleTime)
	return db, nil
}

func (o postgresDialect) migrate(ctx context.Context, db *sql.DB, partitionRows int64) ([]string, error) {
	c := o.config()
	c.PartitionRows = partitionRows
	return postgres.Migrate(ctx, db, c)
}

func (o postgresDialect) migrationSQL(partitionRows int64) (string, error) {
	c := o.config()
	c.PartitionRows = partitionRows
	return postgres.MigrationSQL(c)
}

func (o postgresDialect) grants(role, duty string) (string, error) {
	return postgres.Grants(o.config(), role, postgres.Duty(duty))
}

func (o postgresDialect) open(ctx context.Context, db *sql.DB, source store.Source) (Store, error) {
	c := o.config()
	c.Source = source
	return postgres.Open(ctx, db, c)
}

// isTemporary uses the error codes of appendix A of PostgreSQL's manual, or, without an answer
// from a server, the kind of network error.
func (postgresDialect) isTemporary(err error) bool {
	var refused *pq.Error
	if errors.As(err, &refused) {
		switch refused.Code.Class() {
		case "08", // connection exception
			"53": // insufficient resources: too many connections
			return true
		}
		switch refused.Code {
		case "57P01", "57P02", "57P03", // shutting down, crashed, starting up
			"57014", "55P03": // a statement, or its wait for a lock, took too long
			return true
		}
		return false
	}
	var network net.Error
	return errors.As(err, &network) ||
		errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF)
}
