// Package migration creates and upgrades the tables of one outbox: versioned
// SQL files, applied by goose.
//
// Each dialect embeds its files and describes them with a Set. A file is named
// like 00001_outbox.sql, is a text/template over the set's data (the prefix of
// the tables, the type of the payload), and holds goose's annotations:
//
//	-- +goose Up
//	CREATE TABLE {{.Prefix}} (…);
//
// A function body is between "-- +goose StatementBegin" and "-- +goose StatementEnd". An outbox is
// never migrated down, so nothing follows "Down".
package migration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store"
)

// Set is the migrations of one outbox.
type Set struct {
	// Dialect is goose's name of the database.
	Dialect database.Dialect
	// Files holds the migrations at its root, as *.sql.
	Files fs.FS
	// Data is the data of the files' templates.
	Data any
	// Table is the table in which goose records the applied versions, as statements name it.
	Table string
	// Exists is a query that returns whether Table exists.
	Exists string
	// Locker, if set, returns what keeps other processes from migrating at the same time.
	Locker func() (lock.SessionLocker, error)
	// Locked, if set, reports that a statement has not got the lock of a table for a short time. While it waits, it holds
	// up the statements of others that come after it; so it gives up, and is tried again.
	Locked func(error) bool
}

// A migration that does not get the lock of a table is tried again, for about five minutes.
const (
	lockTries = 60
	lockPause = 3 * time.Second
)

// Up applies missing migrations, each file in its own transaction, and returns the names of the
// applied files, even with an error, since these stay applied. If a newer program has migrated the
// database, it fails with store.ErrNewerSchema.
//
// Processes may migrate at the same time. With a Locker they take turns. Without one, the slower
// process fails on what the faster one has created, and then continues after it.
func (s Set) Up(ctx context.Context, db *sql.DB) ([]string, error) {
	var applied []string
	for tries := 1; ; {
		before, err := s.recorded(ctx, db)
		if err != nil {
			return applied, err
		}
		if err := s.compare(before); !errors.Is(err, store.ErrNotMigrated) {
			return applied, err
		}
		names, err := s.up(ctx, db)
		applied = append(applied, names...)
		if err == nil {
			return applied, nil
		}
		if s.Locked != nil && s.Locked(err) {
			if tries++; tries <= lockTries && pace.Sleep(ctx, lockPause) {
				continue
			}
			return applied, &store.AdvisedError{
				Err: fmt.Errorf("migrate: %w", err), Hint: "another session, such as a dump or an open transaction, locks a table of the outbox: run the migration again when it has ended",
			}
		}
		after, lookErr := s.recorded(ctx, db)
		if lookErr != nil || len(after) <= len(before)+len(names) {
			return applied, fmt.Errorf("migrate: %w", err)
		}
		// Another process has applied versions meanwhile: look again.
	}
}

// Check reports whether this program can work with the tables: store.ErrNotMigrated if a version was
// not applied, store.ErrNewerSchema if this program does not know a version. It writes nothing.
func (s Set) Check(ctx context.Context, db *sql.DB) error {
	recorded, err := s.recorded(ctx, db)
	if err != nil {
		return err
	}
	return s.compare(recorded)
}

// up lets goose apply what is missing and returns the names of the files.
func (s Set) up(ctx context.Context, db *sql.DB) ([]string, error) {
	versions, err := s.versions()
	if err != nil {
		return nil, err
	}
	options := []goose.ProviderOption{
		goose.WithStore(versions),
		goose.WithLogger(goose.NopLogger()),
		// The application may use goose for its own tables.
		goose.WithDisableGlobalRegistry(true),
	}
	if s.Locker != nil {
		locker, err := s.Locker()
		if err != nil {
			return nil, err
		}
		options = append(options, goose.WithSessionLocker(locker))
	}
	provider, err := goose.NewProvider(goose.DialectCustom, db, rendered{s.Files, s.Data}, options...)
	if err != nil {
		return nil, err
	}
	results, err := provider.Up(ctx)
	var partial *goose.PartialError
	if errors.As(err, &partial) {
		results = partial.Applied
		err = fmt.Errorf("%s: %w", path.Base(partial.Failed.Source.Path), partial.Err)
	}
	names := make([]string, len(results))
	for i, r := range results {
		names[i] = path.Base(r.Source.Path)
	}
	return names, err
}

// Verify is Check in a new session, after Up: a session that commits nothing sees what it wrote all the
// same. It closes the idle sessions of the handle.
func (s Set) Verify(ctx context.Context, db *sql.DB) error {
	for range db.Stats().Idle {
		c, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		_ = c.Raw(func(any) error { return driver.ErrBadConn }) // so the pool closes it
		_ = c.Close()
	}
	if err := s.Check(ctx, db); err != nil {
		return fmt.Errorf("the migration ran without an error, but another session does not see its tables: the server or a proxy did not commit it: %w", err)
	}
	return nil
}

// compare compares the recorded versions with the files.
func (s Set) compare(recorded map[int64]bool) error {
	files, err := s.files()
	if err != nil {
		return err
	}
	var current int64
	for version := range recorded {
		current = max(current, version)
	}
	newest := files[len(files)-1].version
	if current > newest {
		return fmt.Errorf("%w: table %s records version %d and this program knows up to %d: upgrade the program",
			store.ErrNewerSchema, s.Table, current, newest)
	}
	for _, f := range files {
		if !recorded[f.version] {
			return fmt.Errorf("%w: table %s does not record version %d (%s): run `waybill migrate`, or call Migrate",
				store.ErrNotMigrated, s.Table, f.version, f.name)
		}
	}
	return nil
}

// recorded returns the versions that goose has recorded; none if its table does not exist.
func (s Set) recorded(ctx context.Context, db *sql.DB) (map[int64]bool, error) {
	versions, err := s.versions()
	if err != nil {
		return nil, err
	}
	exists, err := versions.TableExists(ctx, db)
	if err != nil || !exists {
		return nil, err
	}
	rows, err := versions.ListMigrations(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("read the migrations recorded in %s: %w", s.Table, err)
	}
	recorded := make(map[int64]bool, len(rows))
	for _, row := range rows {
		if row.Version > 0 { // goose records the creation of its table as 0
			recorded[row.Version] = true
		}
	}
	return recorded, nil
}

// versions returns goose's access to its table.
func (s Set) versions() (versions, error) {
	goose, err := database.NewStore(s.Dialect, s.Table)
	return versions{goose, s}, err
}

// versions checks for its table with the set's own query: goose splits quoted names, and takes any
// error of SQLite for a missing table.
type versions struct {
	database.Store
	set Set
}

var _ database.StoreExtender = versions{}

// TableExists reports whether the table exists.
func (v versions) TableExists(ctx context.Context, db database.DBTxConn) (exists bool, err error) {
	if err = db.QueryRowContext(ctx, v.set.Exists).Scan(&exists); err != nil {
		err = fmt.Errorf("look for table %s: %w", v.set.Table, err)
	}
	return exists, err
}
