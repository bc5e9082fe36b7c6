package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

// slow is a connector during whose work something happens.
type slow struct {
	driver.Connector
	meanwhile func()
}

func (s slow) Connect(ctx context.Context) (driver.Conn, error) {
	s.meanwhile()
	return s.Connector.Connect(ctx)
}

func TestAFileReplacedWhileAConnectionIsMadeIsNoticed(t *testing.T) {
	t.Parallel()
	for name, newHandle := range map[string]bool{"the first one": true, "another one": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replacedMeanwhile(t, newHandle)
		})
	}
}

func replacedMeanwhile(t *testing.T, newHandle bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.db")
	create := func() {
		db, err := OpenDB(path)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		_, err = Migrate(t.Context(), db, Config{})
		require.NoError(t, err)
	}
	create()
	f, err := openFile(path, "file:"+path+"?_journal_mode=WAL")
	require.NoError(t, err)
	db := sql.OpenDB(f)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	if !newHandle {
		first, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, first.Close()) }()
	}
	f.Connector = slow{Connector: f.Connector, meanwhile: func() {
		for _, ending := range []string{"", "-wal", "-shm"} {
			require.NoError(t, os.Remove(path+ending))
		}
		create()
	}}
	var replaced *ReplacedError
	require.ErrorAs(t, db.PingContext(t.Context()), &replaced, "the new file should not be read as the old one")
	require.False(t, replaced.Mixed, "the new file's log is not the old one's")
	require.ErrorIs(t, db.PingContext(t.Context()), store.ErrReplaced)
}
