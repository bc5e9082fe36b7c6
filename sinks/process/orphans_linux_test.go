package process

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
)

// adopt makes orphans the children of this process, as if it were process 1. Tests that call
// it cannot be parallel.
func adopt(t *testing.T) {
	t.Helper()
	const setChildSubreaper = 36 // PR_SET_CHILD_SUBREAPER of prctl(2)
	set := func(on uintptr) {
		_, _, errno := syscall.Syscall(syscall.SYS_PRCTL, setChildSubreaper, on, 0)
		require.Zero(t, errno)
	}
	set(1)
	t.Cleanup(func() { set(0) })
}

// whileReaping runs ReapOrphans until the test ends.
func whileReaping(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { ReapOrphans(ctx) })
	t.Cleanup(group.Wait)
	t.Cleanup(cancel)
}

// requireReaped checks that the processes have ended and are not even zombies.
func requireReaped(t *testing.T, pids []string) {
	t.Helper()
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }, soon, time.Millisecond, "process %d", pid)
	}
}

func TestOrphansOfARestartedProgramAreReaped(t *testing.T) {
	adopt(t)
	whileReaping(t)
	const restarts = 15
	c := testConfig(t, "forks")
	sink := open(t, c)
	for range restarts {
		require.Eventually(t, func() bool { return sink.CheckHealth(t.Context()) == nil }, soon, time.Millisecond)
		_, err := sink.Deliver(t.Context(), delivery(t, act{Exit: 1}))
		require.ErrorContains(t, err, "exit status 1")
	}
	closeSink(t, sink)
	pids := noted(c, pidsVariable)
	require.GreaterOrEqual(t, len(pids), 2*restarts)
	requireReaped(t, pids)
}

func TestAnOrphanThatLeftItsGroupIsReapedWhenItEnds(t *testing.T) {
	adopt(t)
	whileReaping(t)
	c := testConfig(t, "forks outside the group")
	c.drainTime = drainTime
	sink := open(t, c)
	requireWorks(t, sink)
	closeSink(t, sink)
	pids := noted(c, pidsVariable)
	sleeper, err := strconv.Atoi(pids[1])
	require.NoError(t, err)
	require.False(t, gone(sleeper))
	require.NoError(t, syscall.Kill(sleeper, syscall.SIGKILL))
	requireReaped(t, pids)
}

func TestEarlierOrphansAreReaped(t *testing.T) {
	adopt(t)
	c := testConfig(t, "forks")
	sink := open(t, c)
	requireWorks(t, sink)
	closeSink(t, sink)
	requireGone(t, c, 2)
	whileReaping(t)
	requireReaped(t, noted(c, pidsVariable))
}

func TestReapingLeavesAnEndedProgramToItsSink(t *testing.T) {
	cmd := exec.Command("sh", "-c", "exit 3")
	require.NoError(t, start(cmd))
	require.Eventually(t, func() bool { return gone(cmd.Process.Pid) }, soon, time.Millisecond)
	reapOrphans()
	require.EqualError(t, wait(cmd), "exit status 3")
	_, kept := started.pids.Load(cmd.Process.Pid)
	require.False(t, kept, "an orphan may get the process id next")
}

func TestReapingDuringAStartTakesNoExitStatus(t *testing.T) {
	adopt(t)
	const ends = 50
	var log lockedBuffer
	c := testConfig(t, "broken")
	c.longestPause = time.Microsecond
	for range 4 {
		open(t, c, sinks.Instance{Name: "shop", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	}
	const ended = "the program does not run"
	for deadline := time.Now().Add(soon); strings.Count(log.String(), ended) < ends; {
		require.True(t, time.Now().Before(deadline), log.String())
		reapOrphans() // repeatedly, so that some calls overlap with starts
	}
	text := log.String()
	require.Equal(t, strings.Count(text, ended), strings.Count(text, "the program ended with exit status 1"), text)
}
