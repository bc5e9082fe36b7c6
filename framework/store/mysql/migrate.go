package mysql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/waybill-go/waybill/framework/store/internal/migration"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrate applies the migrations that the database lacks, and returns their names. DDL commits
// implicitly, so an interrupted migration is run again. Simultaneous migrations wait for each other with
// a session lock (GET_LOCK). A statement that does not get the lock of a table within two seconds lets others use it, and is
// tried again for about five minutes.
func Migrate(ctx context.Context, db *sql.DB, c Config) (applied []string, err error) {
	c, err = c.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := session.Check(ctx, db)
	if err != nil {
		return nil, err
	}
	m := migrations(c, s)
	m.Locker = func() (lock.SessionLocker, error) { return &locker{name: string(names(c.Prefix))}, nil }
	m.Locked = func(err error) bool { return session.Refused(err, session.LockWait) }
	if applied, err = m.Up(ctx, db); err != nil {
		return applied, err
	}
	return applied, m.Verify(ctx, db)
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
	s, err := session.ParseServer(version)
	if err != nil {
		return "", err
	}
	return migrations(c, s).SQL()
}

// layout is the data of the migrations' templates.
type layout struct {
	names
	Collation   string
	PayloadType string
	JSON        bool
	MariaDB     bool
}

func migrations(c Config, s session.Server) migration.Set {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		panic(err) // cannot happen: the folder is embedded
	}
	n := names(c.Prefix)
	data := layout{names: n, Collation: s.Collation, PayloadType: "LONGTEXT", JSON: true, MariaDB: s.Family.Name == session.Families[1].Name}
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

// lockTime is how long a program waits for another program's migration.
const lockTime = 5 * time.Minute

// locker prevents simultaneous migrations of one outbox.
type locker struct{ name string }

var _ lock.SessionLocker = (*locker)(nil)

// lockSQL is the name of the lock: a hash of the database and the outbox, since a name has at most 64
// characters.
const lockSQL = `SHA1(CONCAT(DATABASE(), '.', ?, '.waybill'))`

// SessionLock implements lock.SessionLocker.
func (l *locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullBool
	err := conn.QueryRowContext(ctx, `SELECT GET_LOCK(`+lockSQL+`, ?)`, l.name, int(lockTime.Seconds())).Scan(&got)
	if err == nil && !got.Bool {
		err = fmt.Errorf("another program has been migrating %s for %s", l.name, lockTime)
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, `SET SESSION lock_wait_timeout = 2`)
	}
	return err
}

// SessionUnlock implements lock.SessionLocker.
func (l *locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `SET SESSION lock_wait_timeout = DEFAULT`)
	_, unlockErr := conn.ExecContext(ctx, `DO RELEASE_LOCK(`+lockSQL+`)`, l.name)
	return errors.Join(err, unlockErr)
}
