package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// ReapOrphans waits for the orphans that this process has adopted, until ctx ends. Call it in
// process 1: in a container without an init, this process becomes the parent of processes
// that the programs of sinks leave behind, and they stay zombies unless it waits for them.
//
// ReapOrphans leaves the programs of sinks to their sinks, and treats every other child as an
// orphan. So only sinks of this kind may start processes. A library that waits for any child
// would take the exit status of a program away from its sink.
func ReapOrphans(ctx context.Context) {
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGCHLD)
	defer signal.Stop(ends)
	for {
		reapOrphans()
		select {
		case <-ctx.Done():
			return
		case <-ends:
		}
	}
}

// reapOrphans waits for the orphans that have ended. The zombies may have changed before it
// has the lock. But under the lock, every program that still needs a wait is in started, so a
// child that is not there is an orphan.
func reapOrphans() {
	zombies := zombies()
	if len(zombies) == 0 {
		return
	}
	started.Lock()
	defer started.Unlock()
	for _, pid := range zombies {
		if _, managed := started.pids.Load(pid); !managed {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// zombies lists the children that have ended and have not been waited for.
func zombies() (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, _ := os.ReadFile(file) // the process may be gone
		var pid, parent int
		var state string
		// 17 (name) Z 1 …; the name can contain any character
		_, _ = fmt.Sscan(string(stat), &pid)
		_, _ = fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &parent)
		if state == "Z" && parent == os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}
