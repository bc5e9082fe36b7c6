//go:build unix

package process

import (
	"os"
	"os/exec"
	"syscall"
)

// leadGroup has the process lead a group of its own: signals reach what it has
// started too, and those of our terminal do not reach it.
func leadGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// terminateGroup and killGroup signal the group of that leader. Called just after
// the leader was reaped they reach what it left behind: its number is not given
// out again while a group has it, and hardly at once where none has. An error
// means that no process is there.

func terminateGroup(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGTERM) }

func killGroup(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGKILL) }
