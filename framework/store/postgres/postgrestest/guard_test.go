//go:build unix

package postgrestest

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKilledProcessLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := parentFolder(t)
	program, err := os.Executable()
	require.NoError(t, err)
	victim := exec.Command(program)
	victim.Env = append(os.Environ(), victimVariable+"="+dir)
	victim.Stderr = os.Stderr
	output, err := victim.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, victim.Start())

	report, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	folder := strings.TrimSpace(report)
	postmaster := postmasterOf(t, folder)
	require.True(t, runs(t, postmaster, folder), "the test should find a server that stays")

	require.NoError(t, victim.Process.Kill())
	require.Error(t, victim.Wait())
	require.Eventually(t, func() bool {
		_, err := os.Stat(folder)
		return errors.Is(err, os.ErrNotExist) && !runs(t, postmaster, folder)
	}, time.Minute, 20*time.Millisecond)
	requireEmpty(t, dir)
}

func TestAFolderThatOnlyItsOwnerMayWriteToIsEmptyAfterwards(t *testing.T) {
	t.Parallel()
	dir := parentFolder(t)
	require.NoError(t, os.Chmod(dir, 0o755)) // for root, not for the user who runs the server
	server, err := Start(t.Context(), Options{Private: true, Dir: dir})
	require.NoError(t, err)
	require.NoError(t, server.Stop())
	requireEmpty(t, dir)
}

func postmasterOf(t *testing.T, folder string) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, "data", "postmaster.pid"))
	require.NoError(t, err)
	line, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(line)
	require.NoError(t, err)
	return pid
}

// runs reports whether the server or one of its children is alive. With /proc it looks for processes that
// work in the folder, as all of PostgreSQL's do. Without it, it looks only at the postmaster.
func runs(t *testing.T, postmaster int, folder string) bool {
	t.Helper()
	workplaces, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(t, err)
	if len(workplaces) == 0 {
		return syscall.Kill(postmaster, 0) == nil
	}
	for _, link := range workplaces {
		workplace, err := os.Readlink(link)
		if err == nil && strings.HasPrefix(workplace, folder) {
			return true
		}
	}
	return false
}
