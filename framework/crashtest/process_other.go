//go:build unix && !linux

package crashtest

import (
	"os/exec"
	"syscall"
)

// dieWithParent does nothing, since this system has no such signal. Publishers end when their
// input does.
func dieWithParent(*exec.Cmd) {}

func pause(p *process) error  { return p.Process.Signal(syscall.SIGSTOP) }
func resume(p *process) error { return p.Process.Signal(syscall.SIGCONT) }
