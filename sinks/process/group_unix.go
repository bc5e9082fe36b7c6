//go:build unix

package process

import (
	"os"
	"os/exec"
	"syscall"
)

// leadGroup starts the process in its own group. So signals also reach the processes that it
// starts, and signals of this process's terminal do not reach it.
func leadGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// terminateGroup and killGroup signal the leader's group. Just after the leader was reaped,
// they reach the processes that it left behind: the system does not reuse the number while
// the group exists, and hardly ever at once if it does not. An error means that the group has
// no process.

func terminateGroup(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGTERM) }

func killGroup(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGKILL) }
