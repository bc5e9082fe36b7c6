package process

import (
	"os/exec"
	"sync"
)

// started are the processes for which an exec.Cmd waits. [ReapOrphans] leaves them
// alone: their exit status would be lost, and their number someone else's.
var started struct {
	sync.RWMutex          // for reading while a process starts and is not in pids yet
	pids         sync.Map // of the *exec.Cmd
}

// start is cmd.Start, to be followed by wait.
func start(cmd *exec.Cmd) error {
	started.RLock()
	defer started.RUnlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	started.pids.Store(cmd.Process.Pid, cmd)
	return nil
}

// wait is cmd.Wait. When that returns, the number may be another process's already.
func wait(cmd *exec.Cmd) error {
	defer started.pids.CompareAndDelete(cmd.Process.Pid, cmd)
	return cmd.Wait()
}
