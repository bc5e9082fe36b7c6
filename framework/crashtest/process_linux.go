package crashtest

import (
	"os/exec"
	"syscall"
)

func dieWithParent(command *exec.Cmd) {
	if command.SysProcAttr == nil {
		command.SysProcAttr = new(syscall.SysProcAttr)
	}
	command.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

func pause(p *process) error  { return p.Process.Signal(syscall.SIGSTOP) }
func resume(p *process) error { return p.Process.Signal(syscall.SIGCONT) }
