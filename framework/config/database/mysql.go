package database

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
)

type mysqlDialect struct {
	tables config.Outbox
	// mariaDB reports whether the address names MariaDB, for SQL that is printed without
	// connecting to the server.
	mariaDB bool
}

var _ dialect = mysqlDialect{}

func isMariaDB(address string) bool { return strings.HasPrefix(strings.ToLower(address), "mariadb:") }

func (o mysqlDialect) config() mysql.Config {
	c := mysql.Config{
		Prefix:         o.tables.Prefix,
		Receipts:       o.tables.Receipts,
		WithoutProcess: mysql.Proof(o.tables.WithoutProcess),
	}
	if o.tables.Payload == config.PayloadBytes {
		c.Payload = mysql.PayloadBytes
	}
	return c
}

func (o mysqlDialect) connect(dsn string, _ bool) (*sql.DB, error) {
	db, err := mysql.OpenDB(dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxConnections)
	db.SetConnMaxIdleTime(maxIdleTime)
	return db, nil
}

var errNoPartitionsInMySQL = errors.New("the log has no partitions in MySQL: leave out --partition-rows")

func (o mysqlDialect) migrate(ctx context.Context, db *sql.DB, partitionRows int64) ([]string, error) {
	if partitionRows > 0 {
		return nil, errNoPartitionsInMySQL
	}
	return mysql.Migrate(ctx, db, o.config())
}

func (o mysqlDialect) migrationSQL(partitionRows int64) (string, error) {
	if partitionRows > 0 {
		return "", errNoPartitionsInMySQL
	}
	return mysql.MigrationSQL(o.config(), o.mariaDB)
}

func (o mysqlDialect) grants(role, duty string) (string, error) {
	return mysql.Grants(o.config(), role, duty)
}

func (o mysqlDialect) open(ctx context.Context, db *sql.DB, source store.Source) (Store, error) {
	c := o.config()
	c.Source = source
	return mysql.Open(ctx, db, c)
}

// isTemporary uses the server's error number, or, without an answer from a server, the kind of
// network error.
func (mysqlDialect) isTemporary(err error) bool {
	if mysql.IsPassing(err) {
		return true
	}
	var network net.Error
	return !mysql.IsRefused(err) && (errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF))
}
