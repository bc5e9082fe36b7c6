//go:build unix

package postgrestest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// watch waits for the end of its input, then stops the server of the folder, if
// one runs there, and removes the folder. Where only others than the server's user
// may take the folder out of the one above it, an empty one stays. What it has to say
// may find no reader any more.
const watch = `
trap '' PIPE
read -r _
status=0
[ ! -f "$2/data/postmaster.pid" ] || "$1" stop --wait --mode immediate --pgdata "$2/data" || status=$?
cd / && rm -rf "$2" 2>/dev/null
exit $status
`

// guard sees to it that nothing of a cluster stays. A watchdog process holds the
// reading end of a pipe whose writing end only this process has. So the pipe
// ends when the guard is released, and just as well when this process dies,
// however it dies: the kernel closes it then. There is only this one way to end
// a cluster, so every test run proves it.
type guard struct {
	lifeline   *os.File
	complaints *os.File // of the watchdog; read when it has ended, so that no goroutine waits for them
	watchdog   *exec.Cmd
	folder     string
}

func newGuard(c *cluster) (*guard, error) {
	reading, writing, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reading.Close()
	complaints, complain, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, writing.Close())
	}
	defer complain.Close()
	watchdog := exec.Command("/bin/sh", "-c", watch, "sh", filepath.Join(c.binaries, "pg_ctl"), c.folder)
	watchdog.Stdin, watchdog.Stderr = reading, complain
	watchdog.Dir = c.folder
	watchdog.Env = append(serverEnvironment(), "PATH=/usr/bin:/bin") // rm must be found whatever PATH a test sets
	watchdog.SysProcAttr = c.account.Attributes()
	watchdog.SysProcAttr.Setsid = true // a Ctrl-C in the terminal is not for the watchdog
	if err := watchdog.Start(); err != nil {
		return nil, errors.Join(err, writing.Close(), complaints.Close())
	}
	return &guard{lifeline: writing, complaints: complaints, watchdog: watchdog, folder: c.folder}, nil
}

// release ends the cluster and returns when nothing of it is left.
func (g *guard) release() error {
	closed := g.lifeline.Close()
	stopped := g.watchdog.Wait()
	if stopped != nil {
		said, _ := io.ReadAll(g.complaints) // whatever there is
		stopped = fmt.Errorf("stop the server of %s: %w\n%s", g.folder, stopped, bytes.TrimSpace(said))
	}
	return errors.Join(closed, stopped, g.complaints.Close(), os.RemoveAll(g.folder))
}
