package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

type sqliteDialect config.Outbox

var _ dialect = sqliteDialect{}

func (o sqliteDialect) config() sqlite.Config {
	return sqlite.Config{Prefix: o.Prefix, Receipts: o.Receipts}
}

func (o sqliteDialect) connect(path string, create bool) (*sql.DB, error) {
	if _, err := os.Stat(path); !create && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the file %s does not exist: run `waybill migrate`", store.ErrNotMigrated, path)
	}
	return sqlite.OpenDB(path)
}

func (o sqliteDialect) migrate(ctx context.Context, db *sql.DB, partitionRows int64) ([]string, error) {
	if partitionRows > 0 {
		return nil, errNoPartitions
	}
	return sqlite.Migrate(ctx, db, o.config())
}

func (o sqliteDialect) migrationSQL(partitionRows int64) (string, error) {
	if partitionRows > 0 {
		return "", errNoPartitions
	}
	return sqlite.MigrationSQL(o.config())
}

var errNoPartitions = errors.New("SQLite has no partitions: leave out --partition-rows")

func (sqliteDialect) grants(string, string) (string, error) {
	return "", errors.New("SQLite has no roles: permissions of the file decide who can use the outbox")
}

func (o sqliteDialect) open(ctx context.Context, db *sql.DB, source store.Source) (Store, error) {
	c := o.config()
	c.Source = source
	return sqlite.Open(ctx, db, c)
}

// isTemporary returns false: a file that cannot be read stays unreadable, and the driver itself
// waits for a busy one.
func (sqliteDialect) isTemporary(error) bool { return false }
