package forwarder_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
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
	t.Cleanup(func() { // a program that another test has just started may still have a file of it, until its exec
		require.Eventually(t, func() bool { return syscall.Unmount(dir, 0) == nil }, 10*time.Second, 10*time.Millisecond)
	})
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

// exhaust commits rows with large payloads until the database has no space for one. It returns the ids of the others.
func exhaust(t *testing.T, db *sql.DB) (committed []string) {
	t.Helper()
	payload := `"` + strings.Repeat("x", 200_000) + `"`
	for _, id := range numbered("full", 10_000) {
		if _, err := db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, payload) VALUES ($1, 't', $2)`, id, payload); err != nil {
			t.Log(err)
			return committed
		}
		committed = append(committed, id)
	}
	require.Fail(t, "the disk is never full")
	return nil
}

func TestTheForwarderOutlivesAServerWithoutSpaceForItsWriteAheadLog(t *testing.T) {
	t.Parallel()
	disk := mountDisk(t, "200m")
	server, err := postgrestest.Start(t.Context(), postgrestest.Options{Private: true, Dir: disk,
		Settings: map[string]string{"shared_buffers": "16MB", "max_wal_size": "48MB", "min_wal_size": "32MB"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	w := newFaulty(t, server)
	stop := w.forward(server.DSN())
	w.publish("before", 20)
	w.settle()

	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	w.expected = append(w.expected, exhaust(t, w.db)...)
	for written := 0; err == nil && written < 10_000; written++ {
		_, err = w.db.ExecContext(t.Context(), `SELECT pg_logical_emit_message(false, 'waybill', repeat('x', 1000000))`) // writes nothing else
	}
	require.Error(t, err)
	t.Log(err)
	require.NoError(t, os.Remove(ballast))
	require.NoError(t, server.Restart(postgrestest.Immediate)) // as a supervisor would, if it has ended
	eventually(t, func() bool { return w.db.PingContext(t.Context()) == nil }, "the server is back")
	w.publish("after", 20)
	w.settle()
	stop()
	require.Zero(t, w.repeatedMarks())
}

func TestTheForwarderOutlivesAFullDiskOfSQLite(t *testing.T) {
	t.Parallel()
	disk := mountDisk(t, "8m")
	path := filepath.Join(disk, "outbox.db")
	migrated, err := os.ReadFile(outboxtest.File(t))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, migrated, 0o600))
	o := openSQLite(t, path)
	s := &script{}
	f := o.one(forwarder.Sink{Sink: s}, inRealTime, leased(2*time.Second))
	want := numbered("before", 20)
	o.append("t", "k", want...)
	took := func() bool { return len(s.times()) == len(want) }
	eventually(t, took, "all are delivered")

	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	want = append(want, exhaust(t, o.db)...)
	require.NoError(t, os.Remove(ballast))
	after := numbered("later", 20)
	o.append("t", "k", after...)
	want = append(want, after...)
	eventually(t, took, "all are delivered")
	eventually(t, func() bool { return f.Stats()[0].Pending == 0 }, "all are settled")
	f.end()
	for id, times := range s.times() {
		require.Equal(t, 1, times, id)
	}
}
