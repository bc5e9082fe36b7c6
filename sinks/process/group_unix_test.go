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

// requireGone checks that every process that the children noted has ended.
func requireGone(t *testing.T, c Config, count int) {
	t.Helper()
	pids := noted(c, pidsVariable)
	require.Len(t, pids, count)
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return gone(pid) }, soon, time.Millisecond, "process %d", pid)
	}
}

// gone is true for zombies, too: where nobody reaps orphans they stay.
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
		sink := open(t, c)
		eventuallyTaken(t, sink)
		began := time.Now()
		closeSink(t, sink)
		requireGone(t, c, 2)
		require.Less(t, time.Since(began), c.Grace, "what it left behind holds nobody up")
	})
	t.Run("after a crash", func(t *testing.T) {
		t.Parallel()
		c := testConfig(t, "forks")
		sink := open(t, c)
		_, err := sink.Deliver(t.Context(), delivery(t, act{Exit: 1}))
		require.ErrorIs(t, err, ErrEnded)
		requireGoneFirst(t, c, 2)
		eventuallyTaken(t, sink)
	})
}

func TestAProcessThatLeftTheGroupHoldsNobody(t *testing.T) {
	t.Parallel()
	c := testConfig(t, "sheds")
	sink := open(t, c)
	eventuallyTaken(t, sink)
	sleeper, err := strconv.Atoi(noted(c, pidsVariable)[1])
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Kill(sleeper, syscall.SIGKILL) })
	began := time.Now()
	closeSink(t, sink)
	require.Less(t, time.Since(began), soon)
	require.False(t, gone(sleeper), "it has our pipes, and is nobody's")
}

// requireGoneFirst checks the first processes that were noted.
func requireGoneFirst(t *testing.T, c Config, count int) {
	t.Helper()
	for _, text := range noted(c, pidsVariable)[:count] {
		pid, err := strconv.Atoi(text)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return gone(pid) }, soon, time.Millisecond, "process %d", pid)
	}
}

func TestAProgramThatIgnoresEverythingIsKilled(t *testing.T) {
	t.Parallel()
	c := testConfig(t, "stubborn", "forks")
	c.Grace = 50 * time.Millisecond
	sink := open(t, c)
	eventuallyTaken(t, sink)
	began := time.Now()
	closeSink(t, sink)
	require.GreaterOrEqual(t, time.Since(began), 2*c.Grace, "it was asked twice before")
	requireGone(t, c, 2)
}

func TestAProgramHearsEndOfFileThenSIGTERMAndIsKilledAtLast(t *testing.T) {
	t.Parallel()
	for trait, killed := range map[string]bool{"obeys": false, "lingers": true} {
		t.Run(trait, func(t *testing.T) {
			t.Parallel()
			c := testConfig(t, trait, "traps")
			c.Grace = time.Second
			var log lockedBuffer
			sink := open(t, c, sinks.Instance{Name: "shop", Logger: slog.New(slog.NewTextHandler(&log, nil))})
			eventuallyTaken(t, sink)
			require.Eventually(t, func() bool { return slices.Contains(noted(c, journalVariable), "helper: ready") }, soon, time.Millisecond)
			began := time.Now()
			closeSink(t, sink)
			require.GreaterOrEqual(t, time.Since(began), c.Grace, "SIGTERM comes after a grace")
			require.Equal(t, killed, strings.Contains(log.String(), "the program did not end and is killed"), log.String())
			heard := noted(c, journalVariable)
			end := slices.Index(heard, "program: end of file")
			require.Positive(t, end, heard)
			require.Greater(t, slices.Index(heard, "program: SIGTERM"), end, heard)
			if killed { // else its group was killed at once after it
				require.GreaterOrEqual(t, time.Since(began), 2*c.Grace, "SIGKILL comes after another grace")
				require.Greater(t, slices.Index(heard, "helper: SIGTERM"), end, "the whole group gets it")
			}
		})
	}
}

func TestAProgramThatIsKilledFromOutsideIsStartedAgain(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	sink := open(t, c)
	eventuallyTaken(t, sink)
	pid, err := strconv.Atoi(noted(c, pidsVariable)[0])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(t, func() bool { return len(noted(c, pidsVariable)) == 2 }, soon, time.Millisecond)
	eventuallyTaken(t, sink)
	closeSink(t, sink)
	requireGone(t, c, 2)
}
