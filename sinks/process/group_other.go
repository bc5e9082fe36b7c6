//go:build !unix

package process

import (
	"os"
	"os/exec"
)

// Without process groups and signals, only the program itself is killed, without being asked
// to end first. An error means that it has ended.

func leadGroup(*exec.Cmd) {}

func terminateGroup(leader *os.Process) { _ = leader.Kill() }

func killGroup(leader *os.Process) { _ = leader.Kill() }
