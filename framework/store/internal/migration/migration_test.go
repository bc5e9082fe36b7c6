package migration_test

import (
	"database/sql"
	"errors"
	"io"
	"log"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/migration"
)

var (
	first = &fstest.MapFile{Data: []byte(`-- Not a statement.
-- +goose Up
-- The log.
CREATE TABLE {{.Prefix}} (id INTEGER PRIMARY KEY);
-- +goose StatementBegin
CREATE TRIGGER {{.Prefix}}_guard BEFORE DELETE ON {{.Prefix}} BEGIN
	SELECT RAISE(ABORT, 'no');
END;
-- +goose StatementEnd

-- +goose Down
DROP TABLE {{.Prefix}};
`)}
	second = &fstest.MapFile{Data: []byte("-- +goose Up\nALTER TABLE {{.Prefix}} ADD COLUMN note TEXT;\n")}
	broken = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE half (a);\nCREATE TABLE {{.Prefix}} (twice);\n")}
)

func set(files fstest.MapFS) migration.Set {
	return migration.Set{
		Dialect: database.DialectSQLite3,
		Files:   files,
		Data:    struct{ Prefix string }{"shop"},
		Table:   "shop_migrations",
		Exists:  `SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'shop_migrations')`,
	}
}

func open(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_busy_timeout=10000&_txlock=immediate&_journal_mode=WAL")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Ping()) // one after the other, since only one connection can switch a new file to WAL
	return db
}

func emptyDB(t *testing.T) *sql.DB {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "outbox.db"))
}

func tables(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`).Scan(&n))
	return n
}

func TestUpAppliesEachFileOnce(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)

	applied, err := set(fstest.MapFS{"00001_log.sql": first}).Up(t.Context(), db)
	require.NoError(t, err)
	require.Equal(t, []string{"00001_log.sql"}, applied)

	both := set(fstest.MapFS{"00001_log.sql": first, "00002_note.sql": second})
	require.ErrorIs(t, both.Check(t.Context(), db), store.ErrNotMigrated)
	applied, err = both.Up(t.Context(), db)
	require.NoError(t, err)
	require.Equal(t, []string{"00002_note.sql"}, applied)
	require.NoError(t, both.Check(t.Context(), db))

	applied, err = both.Up(t.Context(), db)
	require.NoError(t, err)
	require.Empty(t, applied)

	_, err = db.Exec(`INSERT INTO shop (note) VALUES ('hello')`)
	require.NoError(t, err)
	_, err = db.Exec(`DELETE FROM shop`)
	require.ErrorContains(t, err, "no", "the trigger is there")
}

func TestCheckWritesNothing(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	err := set(fstest.MapFS{"00001_log.sql": first}).Check(t.Context(), db)
	require.ErrorIs(t, err, store.ErrNotMigrated)
	require.ErrorContains(t, err, "waybill migrate")
	require.Zero(t, tables(t, db))
}

func TestANewerSchemaIsNotChanged(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	_, err := set(fstest.MapFS{"00001_log.sql": first, "00002_note.sql": second}).Up(t.Context(), db)
	require.NoError(t, err)

	older := set(fstest.MapFS{"00001_log.sql": first})
	err = older.Check(t.Context(), db)
	require.ErrorIs(t, err, store.ErrNewerSchema)
	require.ErrorContains(t, err, "records version 2 and this program knows up to 1")
	_, err = older.Up(t.Context(), db)
	require.ErrorIs(t, err, store.ErrNewerSchema)
}

func TestAFailedFileLeavesNothingAndNamesItself(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	files := set(fstest.MapFS{"00001_log.sql": first, "00002_broken.sql": broken})

	applied, err := files.Up(t.Context(), db)
	require.ErrorContains(t, err, "00002_broken.sql")
	require.Equal(t, []string{"00001_log.sql"}, applied, "the applied files are returned with the error")
	require.Equal(t, 2, tables(t, db), "only the log and goose's table, nothing of the failed file")
	require.ErrorIs(t, files.Check(t.Context(), db), store.ErrNotMigrated)
}

func TestAMigrationThatWasNotCommittedIsAnError(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	db.SetMaxOpenConns(1)
	_, err := set(fstest.MapFS{"00001_log.sql": first}).Up(t.Context(), db)
	require.NoError(t, err)
	both := set(fstest.MapFS{"00001_log.sql": first, "00002_note.sql": second})
	for _, statement := range []string{`BEGIN`, `INSERT INTO shop_migrations (version_id, is_applied) VALUES (2, true)`} {
		_, err := db.Exec(statement)
		require.NoError(t, err)
	}
	require.NoError(t, both.Check(t.Context(), db), "the session sees its own rows")
	err = both.Verify(t.Context(), db)
	require.ErrorIs(t, err, store.ErrNotMigrated)
	require.ErrorContains(t, err, "did not commit")
}

func TestAMisspeltTemplateFieldIsAnError(t *testing.T) {
	t.Parallel()
	text := &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE {{.Perfix}} (a);\n")}
	files := set(fstest.MapFS{"00001_log.sql": text})
	files.Data = map[string]string{"Prefix": "shop"}
	_, err := files.SQL()
	require.ErrorContains(t, err, "Perfix")
	_, err = files.Up(t.Context(), emptyDB(t))
	require.ErrorContains(t, err, "Perfix")
}

func TestASetWithoutVersionsIsAnError(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	require.ErrorIs(t, set(fstest.MapFS{}).Check(t.Context(), db), goose.ErrNoMigrations)
	err := set(fstest.MapFS{"log.sql": first}).Check(t.Context(), db)
	require.ErrorContains(t, err, "log.sql")
}

func TestProcessesCanMigrateSimultaneously(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	files := fstest.MapFS{"00001_log.sql": first, "00002_note.sql": second}

	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		all  []string
		errs []error
	)
	for range 4 {
		db := open(t, path)
		wg.Go(func() {
			applied, err := set(files).Up(t.Context(), db)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, applied...)
			errs = append(errs, err)
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.ElementsMatch(t, []string{"00001_log.sql", "00002_note.sql"}, all, "one process applied each file")
}

func TestThePrintedSQLMigrates(t *testing.T) {
	t.Parallel()
	files := set(fstest.MapFS{"00001_log.sql": first, "00002_note.sql": second})
	script, err := files.SQL()
	require.NoError(t, err)
	require.Equal(t, `CREATE TABLE shop_migrations (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	version_id INTEGER NOT NULL,
	is_applied INTEGER NOT NULL,
	tstamp TIMESTAMP DEFAULT (datetime('now'))
);
INSERT INTO shop_migrations (version_id, is_applied) VALUES (0, true);

-- 00001_log.sql
-- The log.
CREATE TABLE shop (id INTEGER PRIMARY KEY);
CREATE TRIGGER shop_guard BEFORE DELETE ON shop BEGIN
	SELECT RAISE(ABORT, 'no');
END;
INSERT INTO shop_migrations (version_id, is_applied) VALUES (1, true);

-- 00002_note.sql
ALTER TABLE shop ADD COLUMN note TEXT;
INSERT INTO shop_migrations (version_id, is_applied) VALUES (2, true);
`, script)

	db := emptyDB(t)
	_, err = db.Exec(script)
	require.NoError(t, err)
	require.NoError(t, files.Check(t.Context(), db))
	applied, err := files.Up(t.Context(), db)
	require.NoError(t, err)
	require.Empty(t, applied)
}

// Not parallel, since it replaces the process's standard output.
func TestNothingIsPrinted(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = w, w
	log.SetOutput(w)
	_, upErr := set(fstest.MapFS{"00001_log.sql": first}).Up(t.Context(), emptyDB(t))
	os.Stdout, os.Stderr = stdout, stderr
	log.SetOutput(stderr)
	require.NoError(t, w.Close())
	require.NoError(t, upErr)

	printed, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Empty(t, string(printed))
}
