package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

func TestAFileThatWasReplacedIsNeitherReadNorWritten(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(t *testing.T, path string){
		"removed": removeAll,
		"removed one after the other": func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			var rest errgroup.Group
			t.Cleanup(func() { require.NoError(t, rest.Wait()) })
			rest.Go(func() error {
				time.Sleep(100 * time.Millisecond)
				return errors.Join(os.Remove(path+"-wal"), os.Remove(path+"-shm"))
			})
		},
		"renamed": func(t *testing.T, path string) {
			for _, ending := range []string{"", "-wal", "-shm"} {
				require.NoError(t, os.Rename(path+ending, path+".old"+ending))
			}
		},
		"created again": func(t *testing.T, path string) {
			removeAll(t, path)
			migrated(t, path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "shop.db")
			migrated(t, path)
			db, err := sqlite.OpenDB(path)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			s, err := sqlite.Open(t.Context(), db, sqlite.Config{})
			require.NoError(t, err)
			tx, err := db.BeginTx(t.Context(), nil) // two connections are in the pool
			require.NoError(t, err)
			_, err = s.Probe(t.Context())
			require.NoError(t, err)
			require.NoError(t, tx.Rollback())
			replace(t, path)
			for range 3 {
				_, err = s.Probe(t.Context())
				require.ErrorIs(t, err, store.ErrReplaced)
				require.ErrorContains(t, err, path)
				var replaced *sqlite.ReplacedError
				require.ErrorAs(t, err, &replaced)
				require.False(t, replaced.Mixed)
				_, err = db.ExecContext(t.Context(), `INSERT INTO outbox (type, payload) VALUES ('t', '{}')`)
				require.ErrorIs(t, err, store.ErrReplaced)
			}
			if name != "created again" {
				require.NoFileExists(t, path, "no empty database is made in its place")
				return
			}
			again, err := sqlite.OpenDB(path)
			require.NoError(t, err)
			defer func() { require.NoError(t, again.Close()) }()
			_, err = sqlite.Open(t.Context(), again, sqlite.Config{})
			require.NoError(t, err)
		})
	}
}

// A database that is moved into the place of an open one finds the write-ahead log of that one.
func TestAReplacedFileBesideTheOldWriteAheadLogIsReported(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path, backup := filepath.Join(folder, "shop.db"), filepath.Join(folder, "backup.db")
	migrated(t, path)
	migrated(t, backup)
	db, err := sqlite.OpenDB(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), `INSERT INTO outbox (type, payload) VALUES ('t', '{}')`)
	require.NoError(t, err)

	require.NoError(t, os.Rename(backup, path))
	var replaced *sqlite.ReplacedError
	require.ErrorAs(t, db.PingContext(t.Context()), &replaced)
	require.True(t, replaced.Mixed)
	require.NoError(t, os.Remove(path+"-wal"))
	require.ErrorIs(t, db.PingContext(t.Context()), store.ErrMixed, "another program may have opened it meanwhile")
	require.ErrorContains(t, replaced, path+"-wal")
}

func removeAll(t *testing.T, path string) {
	t.Helper()
	for _, ending := range []string{"", "-wal", "-shm"} {
		require.NoError(t, os.Remove(path+ending))
	}
}

func migrated(t *testing.T, path string) {
	t.Helper()
	db, err := sqlite.OpenDB(path)
	require.NoError(t, err)
	_, err = sqlite.Migrate(t.Context(), db, sqlite.Config{})
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
