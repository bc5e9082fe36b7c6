package mysql

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/waybill-go/waybill/framework/store/internal/migration"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrate brings the tables up to what this version of the program needs and returns the names of
// the migrations that it applied, none if all were there. DDL commits by itself, so a migration that
// was interrupted is run again. Programs that migrate at the same time wait for each other on a lock
// of the session's (GET_LOCK).
func Migrate(ctx context.Context, db *sql.DB, c Config) (applied []string, err error) {
	c, err = c.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := checkServer(ctx, db)
	if err != nil {
		return nil, err
	}
	m := migrations(c, s)
	m.Locker = &locker{name: string(names(c.Prefix))}
	return m.Up(ctx, db)
}

// MigrationSQL returns the SQL that Migrate would run on an empty database of MySQL, or of MariaDB if
// mariaDB is true, for use with another migration tool.
func MigrationSQL(c Config, mariaDB bool) (string, error) {
	c, err := c.withDefaults()
	if err != nil {
		return "", err
	}
	version := "8.0.17"
	if mariaDB {
		version = "10.6.0-MariaDB"
	}
	s, err := parseServer(version)
	if err != nil {
		return "", err
	}
	return migrations(c, s).SQL()
}

// layout is what the migrations' templates see.
type layout struct {
	names
	Collation   string
	PayloadType string
	JSON        bool
}

func migrations(c Config, s server) migration.Set {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	n := names(c.Prefix)
	data := layout{names: n, Collation: s.collation, PayloadType: "LONGTEXT", JSON: true}
	if c.Payload == PayloadBytes {
		data.PayloadType, data.JSON = "LONGBLOB", false
	}
	return migration.Set{
		Dialect: database.DialectMySQL,
		Files:   files,
		Data:    data,
		Table:   n.Table("migrations"),
		Exists:  `SELECT EXISTS (SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '` + n.plain("migrations") + `')`,
	}
}

// lockTime is how long a program waits for another one that migrates.
const lockTime = 5 * time.Minute

// locker keeps programs from migrating one outbox at the same time.
type locker struct{ name string }

var _ lock.SessionLocker = (*locker)(nil)

// lockSQL names the lock by the database too, within 64 characters.
const lockSQL = `SHA1(CONCAT(DATABASE(), '.', ?, '.waybill'))`

// SessionLock implements lock.SessionLocker.
func (l *locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullBool
	err := conn.QueryRowContext(ctx, `SELECT GET_LOCK(`+lockSQL+`, ?)`, l.name, int(lockTime.Seconds())).Scan(&got)
	if err == nil && !got.Bool {
		err = fmt.Errorf("another program has been migrating %s for %s", l.name, lockTime)
	}
	return err
}

// SessionUnlock implements lock.SessionLocker.
func (l *locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `DO RELEASE_LOCK(`+lockSQL+`)`, l.name)
	return err
}
