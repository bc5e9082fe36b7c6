package forwarder_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
)

// mountDisk mounts a small file system in memory. It skips the test without the privilege to do so.
func mountDisk(t *testing.T, size string) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "waybill-disk-*") // unlike t.TempDir the server's user can access it
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.Remove(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	err = syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=777,size="+size)
	if errors.Is(err, syscall.EPERM) {
		t.Skip("mounting a file system requires a privilege")
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	return dir
}

// fill writes a file until the disk is full.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	require.NoError(t, err)
	defer f.Close()
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			block = block[:len(block)/2]
		}
	}
}

func TestTheForwarderWaitsWhileADiskIsFull(t *testing.T) {
	t.Parallel()
	disk := mountDisk(t, "8m")
	w := newFaulty(t, startPrivate(t))
	// The disk belongs to the server's user. It has only the table of receipts: without space for
	// the WAL the server would stop, which another test covers.
	var data string
	require.NoError(t, w.db.QueryRowContext(t.Context(), `SHOW data_directory`).Scan(&data))
	owner, err := os.Stat(data)
	require.NoError(t, err)
	require.NoError(t, os.Chown(disk, int(owner.Sys().(*syscall.Stat_t).Uid), -1))
	_, err = w.db.ExecContext(t.Context(), `CREATE TABLESPACE small LOCATION '`+disk+`'`)
	require.NoError(t, err)
	w.exec(`ALTER TABLE outbox_receipts SET TABLESPACE small`)

	const n = 5000 // more receipts than the disk has space for
	w.exec(`INSERT INTO outbox (id, type, payload) SELECT 'id' || i, 't', '{}' FROM generate_series(1, $1::int) AS i`, n)
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	stop := w.forward(w.server.DSN(), func(c *forwarder.Config) { c.Lease = time.Minute })
	w.awaitFailures()
	require.NoError(t, os.Remove(ballast))
	eventually(t, func() bool {
		var receipts int
		return w.db.QueryRowContext(t.Context(), `SELECT count(*) FROM outbox_receipts`).Scan(&receipts) == nil && receipts == n
	}, "all receipts are stored")
	stop()
	require.Equal(t, 1, w.logged("disk is full"), w.log())
	require.Contains(t, w.log(), "works again")
	require.Zero(t, w.repeatedMarks())
	for id, times := range w.times() {
		require.Equal(t, 1, times, id)
	}
}
