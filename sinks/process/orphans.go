package process

import (
	"os/exec"
	"sync"
)

// started has the processes for which an exec.Cmd waits. [ReapOrphans] leaves them alone:
// otherwise their exit status would be lost, and another process could get their number.
var started struct {
	sync.RWMutex          // held for reading while a process starts and is not in pids yet
	pids         sync.Map // from the pid to its *exec.Cmd
}

// start calls cmd.Start. Call wait afterwards.
func start(cmd *exec.Cmd) error {
	started.RLock()
	defer started.RUnlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	started.pids.Store(cmd.Process.Pid, cmd)
	return nil
}

// wait calls cmd.Wait. When that returns, another process may already have the same number,
// so wait deletes only its own entry.
func wait(cmd *exec.Cmd) error {
	defer started.pids.CompareAndDelete(cmd.Process.Pid, cmd)
	return cmd.Wait()
}
