package observe_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/observe"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// A stopped server keeps its connections but does not answer.
func TestAProcessIsNotReadyWhileTheDatabaseIsFrozenAndStaysLive(t *testing.T) {
	t.Parallel()
	server, err := postgrestest.Start(t.Context(), postgrestest.Options{Private: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	o := onPostgres(t, outboxtest.Migrated(t, server.DSN()))
	m := observe.New(observe.Config{})
	c := o.config(m, map[string]forwarder.Sink{"events": {Sink: byType{}}})
	c.Lease = 3 * time.Second
	o.run(t, m, c)
	requireProbe(t, m, "/readyz", http.StatusOK, "ready")

	var folder string
	require.NoError(t, o.db.QueryRowContext(t.Context(), `SHOW data_directory`).Scan(&folder))
	postmaster := postmasterOf(t, folder)
	thaw := func() { signalAll(t, postmaster, syscall.SIGCONT) }
	t.Cleanup(thaw)
	signalAll(t, postmaster, syscall.SIGSTOP)
	requireProbe(t, m, "/readyz?verbose", http.StatusServiceUnavailable, "[-] database: no round trip for")
	requireProbe(t, m, "/livez", http.StatusOK, "live")
	scrape(t, m) // needs no database

	thaw()
	requireProbe(t, m, "/readyz", http.StatusOK, "ready")
}

func postmasterOf(t *testing.T, folder string) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, "postmaster.pid"))
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(first)
	require.NoError(t, err)
	return pid
}

// signalAll sends a signal to a server first, so that it starts no more processes, and then to all
// its processes.
func signalAll(t *testing.T, postmaster int, s syscall.Signal) {
	t.Helper()
	_ = syscall.Kill(postmaster, s)
	children, err := os.ReadFile("/proc/" + strconv.Itoa(postmaster) + "/task/" + strconv.Itoa(postmaster) + "/children")
	if err != nil {
		return // it has ended
	}
	for _, child := range strings.Fields(string(children)) {
		pid, err := strconv.Atoi(child)
		require.NoError(t, err)
		_ = syscall.Kill(pid, s)
	}
}
