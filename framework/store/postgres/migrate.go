package postgres

import (
	"context"
	"database/sql"
	"embed"
	"io/fs"

	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/waybill-go/waybill/framework/store/internal/migration"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrate brings the tables up to what this version of the program needs and
// returns the names of the migrations that it applied, none if all were there.
// Each runs in a transaction of its own. Programs that migrate at the same time
// wait for each other on an advisory lock; it is the one use of session state,
// so behind a transaction pooler migrate over a direct connection.
func Migrate(ctx context.Context, db *sql.DB, c Config) (applied []string, err error) {
	c, err = c.withDefaults()
	if err != nil {
		return nil, err
	}
	if _, err := checkServer(ctx, db); err != nil {
		return nil, err
	}
	m := migrations(c)
	if m.Locker, err = lock.NewPostgresSessionLocker(); err != nil {
		return nil, err
	}
	if applied, err = m.Up(ctx, db); err != nil {
		return applied, err
	}
	return applied, extendPartitions(ctx, db, c)
}

// MigrationSQL returns the SQL that Migrate would run on an empty database, for
// those who apply it with a tool of their own.
func MigrationSQL(c Config) (string, error) {
	c, err := c.withDefaults()
	if err != nil {
		return "", err
	}
	return migrations(c).SQL()
}

func migrations(c Config) migration.Set {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	return migration.Set{
		Dialect: database.DialectPostgres,
		Files:   files,
		Data: struct {
			Config
			Partitions     []partition
			Default, Guard string
		}{c, partitionsAhead(c.Prefix, partition{To: 1}, c.PartitionRows, 0), offsetDefault(c.Prefix), offsetGuard(c.Prefix)},
		Table: c.Prefix + "_migrations",
	}
}
