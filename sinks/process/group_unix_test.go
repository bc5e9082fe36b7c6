//go:build unix

package process

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
)

func leaveGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// requireGone checks that the children noted count processes, and that all have ended.
func requireGone(t *testing.T, c Config, count int) {
	t.Helper()
	require.Len(t, noted(c, pidsVariable), count)
	requireFirstGone(t, c, count)
}

// requireFirstGone checks that the first processes that the children noted have ended.
func requireFirstGone(t *testing.T, c Config, count int) {
	t.Helper()
	for _, text := range noted(c, pidsVariable)[:count] {
		pid, err := strconv.Atoi(text)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return gone(pid) }, soon, time.Millisecond, "process %d", pid)
	}
}

// gone reports whether a process has ended. A zombie has ended too: it stays if the system does not
// reap orphans.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && strings.HasPrefix(state, "Z")
}

func TestNothingIsLeftOfAProgramThatForks(t *testing.T) {
	t.Parallel()
	t.Run("after a close", func(t *testing.T) {
		t.Parallel()
		c := testConfig(t, "forks")
		c.Grace = soon
		sink := open(t, c)
		requireWorks(t, sink)
		began := time.Now()
		closeSink(t, sink)
		requireGone(t, c, 2)
		require.Less(t, time.Since(began), c.Grace, "a process that the program left behind does not delay Close")
	})
	t.Run("after a crash", func(t *testing.T) {
		t.Parallel()
		c := testConfig(t, "forks")
		sink := open(t, c)
		_, err := sink.Deliver(t.Context(), delivery(t, act{Exit: 1}))
		require.ErrorIs(t, err, ErrEnded)
		requireFirstGone(t, c, 2)
		requireWorks(t, sink)
	})
}

func TestAProcessThatLeftTheGroupDoesNotDelayClose(t *testing.T) {
	t.Parallel()
	c := testConfig(t, "forks outside the group")
	c.drainTime = drainTime
	sink := open(t, c)
	requireWorks(t, sink)
	sleeper, err := strconv.Atoi(noted(c, pidsVariable)[1])
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Kill(sleeper, syscall.SIGKILL) })
	began := time.Now()
	closeSink(t, sink)
	require.Less(t, time.Since(began), soon)
	require.False(t, gone(sleeper), "a process outside the group is not killed")
}

func TestAProgramThatIgnoresEverythingIsKilled(t *testing.T) {
	t.Parallel()
	c := testConfig(t, "ignores SIGTERM", "forks")
	c.Grace = 50 * time.Millisecond
	sink := open(t, c)
	requireWorks(t, sink)
	began := time.Now()
	closeSink(t, sink)
	require.GreaterOrEqual(t, time.Since(began), 2*c.Grace, "Close waited for two periods of grace")
	requireGone(t, c, 2)
}

func TestAProgramGetsEndOfFileThenSIGTERMThenSIGKILL(t *testing.T) {
	t.Parallel()
	for trait, killed := range map[string]bool{"ends at SIGTERM": false, "survives SIGTERM": true} {
		t.Run(trait, func(t *testing.T) {
			t.Parallel()
			c := testConfig(t, trait, "helper traps SIGTERM")
			c.Grace = 4 * time.Second // in each, the program must be able to note what it got
			var log lockedBuffer
			sink := open(t, c, sinks.Instance{Name: "shop", Logger: slog.New(slog.NewTextHandler(&log, nil))})
			requireWorks(t, sink)
			require.Eventually(t, func() bool { return slices.Contains(noted(c, journalVariable), "helper: ready") }, soon, time.Millisecond)
			began := time.Now()
			closeSink(t, sink)
			require.GreaterOrEqual(t, time.Since(began), c.Grace, "SIGTERM comes after a grace")
			require.Equal(t, killed, strings.Contains(log.String(), "the program did not end and is killed"), log.String())
			journal := noted(c, journalVariable)
			end := slices.Index(journal, "program: end of file")
			require.Positive(t, end, journal)
			require.Greater(t, slices.Index(journal, "program: SIGTERM"), end, journal)
			if killed { // otherwise the group is killed as soon as the program has ended
				require.GreaterOrEqual(t, time.Since(began), 2*c.Grace, "SIGKILL comes after another grace")
				require.Greater(t, slices.Index(journal, "helper: SIGTERM"), end, "the whole group gets SIGTERM")
			}
		})
	}
}

func TestAProgramThatIsKilledFromOutsideIsRestarted(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	sink := open(t, c)
	requireWorks(t, sink)
	pid, err := strconv.Atoi(noted(c, pidsVariable)[0])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(t, func() bool { return len(noted(c, pidsVariable)) == 2 }, soon, time.Millisecond)
	requireWorks(t, sink)
	closeSink(t, sink)
	requireGone(t, c, 2)
}
