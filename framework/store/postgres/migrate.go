package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/lib/pq"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/migration"
	"github.com/waybill-go/waybill/framework/store/postgres/internal/catalog"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrate upgrades the tables to what this version of the program needs and returns the names of
// the migrations that it applied, none if the tables were up to date. Each migration runs in its
// own transaction. One that does not get the lock of a table within two seconds lets others use it, and is tried again for
// about five minutes. Programs that migrate at the same time wait for each other on an advisory lock.
// These are the only uses of session state, so migrate over a direct connection rather than through
// a transaction pooler.
func Migrate(ctx context.Context, db *sql.DB, c Config) (applied []string, err error) {
	c, err = c.withDefaults()
	if err != nil {
		return nil, err
	}
	if _, err := checkServer(ctx, db); err != nil {
		return nil, err
	}
	n, err := c.names(ctx, db)
	if err != nil {
		return nil, err
	}
	if err := makeSchema(ctx, db, n); err != nil {
		return nil, err
	}
	m := migrations(c, n)
	m.Locker = func() (lock.SessionLocker, error) {
		advisory, err := lock.NewPostgresSessionLocker()
		return locker{advisory}, err
	}
	m.Locked = func(err error) bool { return catalog.Refused(err, lockNotAvailable) }
	if applied, err = m.Up(ctx, db); err != nil {
		return applied, err
	}
	if err := extendPartitions(ctx, db, c, n); err != nil {
		return applied, err
	}
	return applied, m.Verify(ctx, db)
}

// locker is an advisory lock, during which statements do not wait long for the lock of a table.
type locker struct{ lock.SessionLocker }

// SessionLock implements lock.SessionLocker.
func (l locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	err := l.SessionLocker.SessionLock(ctx, conn)
	if err == nil {
		_, err = conn.ExecContext(ctx, `SET lock_timeout = '2s'`)
	}
	return err
}

// SessionUnlock implements lock.SessionLocker.
func (l locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `RESET lock_timeout`)
	return errors.Join(err, l.SessionLocker.SessionUnlock(ctx, conn))
}

// MigrationSQL returns the SQL that Migrate would run on an empty database, for people who apply
// it with another tool.
func MigrationSQL(c Config) (string, error) {
	c, err := c.withDefaults()
	if err != nil {
		return "", err
	}
	n, err := catalog.Parse(c.Prefix)
	if err != nil {
		return "", err
	}
	text, err := migrations(c, n).SQL()
	if err == nil && n.Schema != "" {
		text = `CREATE SCHEMA IF NOT EXISTS ` + pq.QuoteIdentifier(n.Schema) + ";\n" + text
	}
	return text, err
}

// makeSchema creates the schema that the prefix names, if it does not exist and this role may
// create it.
func makeSchema(ctx context.Context, db *sql.DB, n names) error {
	var exists bool
	if err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, n.Schema).Scan(&exists); err != nil || exists {
		return err
	}
	// Another program may create it at the same time, which is not an error.
	_, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS `+pq.QuoteIdentifier(n.Schema))
	switch {
	case err == nil, catalog.Refused(err, "23505", "42P06"):
		return nil
	case catalog.Refused(err, catalog.DeniedPrivilege):
		return &store.AdvisedError{
			Err:  fmt.Errorf("make the schema %s: %w", n.Schema, err),
			Hint: "ask someone who may do it to run CREATE SCHEMA " + pq.QuoteIdentifier(n.Schema) + " AUTHORIZATION followed by the role that migrates",
		}
	}
	return fmt.Errorf("make the schema %s: %w", n.Schema, err)
}

func migrations(c Config, n names) migration.Set {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	return migration.Set{
		Dialect: database.DialectPostgres,
		Files:   files,
		Data: struct {
			names
			Payload        Payload
			Partitions     []partition
			Default, Guard string
		}{n, c.Payload, partitionsAhead(n, partition{To: 1}, c.PartitionRows, 0), offsetDefault(n), offsetGuard(n)},
		Table:  n.Table("migrations"),
		Exists: `SELECT to_regclass(` + n.Literal("migrations") + `) IS NOT NULL`,
	}
}
