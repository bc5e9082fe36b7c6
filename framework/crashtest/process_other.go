//go:build unix && !linux

package crashtest

import (
	"os/exec"
	"syscall"
)

// dieWithParent does nothing: there is no such signal here. Publishers end with
// their input.
func dieWithParent(*exec.Cmd) {}

func pause(p *process) error  { return p.Process.Signal(syscall.SIGSTOP) }
func resume(p *process) error { return p.Process.Signal(syscall.SIGCONT) }
