//go:build !unix

package process

import (
	"os"
	"os/exec"
)

// Without process groups the program alone is ended, and at once: there is no
// signal to ask with. An error means that it has ended.

func leadGroup(*exec.Cmd) {}

func terminateGroup(leader *os.Process) { _ = leader.Kill() }

func killGroup(leader *os.Process) { _ = leader.Kill() }
