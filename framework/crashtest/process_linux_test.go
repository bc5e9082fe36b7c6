package crashtest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAHarnessThatIsKilledLeavesNoProcesses(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	program, err := os.Executable()
	require.NoError(t, err)
	harness := exec.Command(program)
	harness.Env = append(os.Environ(), variableDoomed+"="+folder)
	require.NoError(t, harness.Start())
	t.Cleanup(func() {
		if harness.ProcessState == nil {
			_ = harness.Process.Kill()
			_ = harness.Wait()
		}
	})

	var ids []string
	require.Eventually(t, func() bool {
		ids = children(t, harness.Process.Pid)
		written, err := filepath.Glob(filepath.Join(folder, "*"))
		require.NoError(t, err)
		return len(written) == 2 && len(ids) >= 2+3 // two forwarders and three publishers
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, harness.Process.Kill())
	_ = harness.Wait()
	for _, id := range ids {
		require.Eventually(t, func() bool { return gone(id) }, time.Minute, 10*time.Millisecond, "process %s still runs", id)
	}
}

// children returns the ids of a process's children, including the watchdog of the database.
func children(t *testing.T, parent int) (ids []string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil { // otherwise the thread has ended
			ids = append(ids, strings.Fields(string(text))...)
		}
	}
	return ids
}

// gone reports whether a process has ended, even if its parent has not waited for it.
func gone(id string) bool {
	stat, err := os.ReadFile("/proc/" + id + "/stat")
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}
