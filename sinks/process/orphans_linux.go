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

// ReapOrphans waits for the orphans that this process has adopted, until ctx is
// done. Process 1 needs it: in a container without an init it is the program itself
// that becomes the parent of what the programs of sinks leave behind, and what nothing
// waits for stays a zombie.
//
// It never waits for a program of a sink, whose sink does. It takes for an orphan
// whatever else is a child: where it runs, nothing but sinks of this kind may
// start processes. Libraries that wait for any child would take the programs'
// exit status from their sinks.
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

// reapOrphans waits for the orphans that have ended. What it saw may have changed when
// it has the lock, but then every program that has not been waited for is in
// started: a child that is not is an orphan.
func reapOrphans() {
	zombies := zombies()
	if len(zombies) == 0 {
		return
	}
	started.Lock()
	defer started.Unlock()
	for _, pid := range zombies {
		if _, ours := started.pids.Load(pid); !ours {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// zombies lists the children that have ended and for which nothing has waited.
func zombies() (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, _ := os.ReadFile(file) // it may be gone
		var pid, parent int
		var state string
		// 17 (name) Z 1 …: the name may hold anything
		_, _ = fmt.Sscan(string(stat), &pid)
		_, _ = fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &parent)
		if state == "Z" && parent == os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}
