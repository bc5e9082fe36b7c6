//go:build unix

package postgrestest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
)

// watch waits for the end of its input, then stops the server of the folder, if
// one runs there, and removes the folder.
const watch = `
read -r _
[ ! -f "$2/data/postmaster.pid" ] || "$1" stop --wait --mode immediate --pgdata "$2/data"
cd / && rm -rf "$2"
`

// guard sees to it that nothing of a cluster stays. A watchdog process holds the
// reading end of a pipe whose writing end only this process has. So the pipe
// ends when the guard is released, and just as well when this process dies,
// however it dies: the kernel closes it then. There is only this one way to end
// a cluster, so every test run proves it.
type guard struct {
	lifeline *os.File
	watchdog *exec.Cmd
}

func newGuard(c *cluster) (*guard, error) {
	reading, writing, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reading.Close()
	watchdog := exec.Command("/bin/sh", "-c", watch, "sh", filepath.Join(c.binaries, "pg_ctl"), c.folder)
	watchdog.Stdin = reading
	watchdog.Dir = c.folder
	watchdog.Env = append(serverEnvironment(), "PATH=/usr/bin:/bin") // rm must be found whatever PATH a test sets
	watchdog.SysProcAttr = c.account.attributes()
	watchdog.SysProcAttr.Setsid = true // a Ctrl-C in the terminal is not for the watchdog
	if err := watchdog.Start(); err != nil {
		return nil, errors.Join(err, writing.Close())
	}
	return &guard{lifeline: writing, watchdog: watchdog}, nil
}

// release ends the cluster and returns when nothing of it is left.
func (g *guard) release() error {
	return errors.Join(g.lifeline.Close(), g.watchdog.Wait())
}
