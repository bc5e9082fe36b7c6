package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"io/fs"

	"github.com/pressly/goose/v3/database"

	"github.com/waybill-go/waybill/framework/store/internal/migration"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrate upgrades the tables to what this version of the program needs and returns the names of
// the migrations that it applied, none if the tables were up to date. Each migration runs in its
// own transaction. Programs may migrate at the same time.
func Migrate(ctx context.Context, db *sql.DB, c Config) (applied []string, err error) {
	c, err = c.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkHandle(ctx, db); err != nil {
		return nil, err
	}
	return migrations(c).Up(ctx, db)
}

// MigrationSQL returns the SQL that Migrate would run on an empty database, for people who apply it
// with another tool.
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
		Dialect: database.DialectSQLite3,
		Files:   files,
		Data:    names(c.Prefix),
		Table:   names(c.Prefix).Table("migrations"),
		Exists:  `SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '` + c.Prefix + `_migrations')`,
	}
}
