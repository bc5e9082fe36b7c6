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

// watch waits for the end of its input, stops the server in the folder if one is running, and
// removes the folder. If the server's user may not remove it from its parent folder, an empty
// folder remains. By then it may have lost the reader of its output.
const watch = `
trap '' PIPE
read -r _
status=0
[ ! -f "$2/data/postmaster.pid" ] || "$1" stop --wait --mode immediate --pgdata "$2/data" || status=$?
cd / && rm -rf "$2" 2>/dev/null
exit $status
`

// guard removes everything of a cluster. A watchdog process holds the reading end of a pipe, and
// only this process holds the writing end. The kernel closes the pipe when this process dies, and
// release closes it too. A cluster always ends this way, so every test run tests it.
type guard struct {
	lifeline *os.File
	output   *os.File // output of the watchdog; read after it has ended, so that no goroutine waits for it
	watchdog *exec.Cmd
	folder   string
}

func newGuard(c *cluster) (*guard, error) {
	reading, writing, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reading.Close()
	output, outputEnd, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, writing.Close())
	}
	defer outputEnd.Close()
	watchdog := exec.Command("/bin/sh", "-c", watch, "sh", filepath.Join(c.binaries, "pg_ctl"), c.folder)
	watchdog.Stdin, watchdog.Stderr = reading, outputEnd
	watchdog.Dir = c.folder
	watchdog.Env = append(serverEnvironment(), "PATH=/usr/bin:/bin") // finds rm even if a test sets PATH
	watchdog.SysProcAttr = c.account.Attributes()
	watchdog.SysProcAttr.Setsid = true // Ctrl-C in the terminal must not end the watchdog
	if err := watchdog.Start(); err != nil {
		return nil, errors.Join(err, writing.Close(), output.Close())
	}
	return &guard{lifeline: writing, output: output, watchdog: watchdog, folder: c.folder}, nil
}

// release ends the cluster and returns when nothing is left of it.
func (g *guard) release() error {
	closed := g.lifeline.Close()
	stopped := g.watchdog.Wait()
	if stopped != nil {
		output, _ := io.ReadAll(g.output) // the error of the watchdog matters more
		stopped = fmt.Errorf("stop the server of %s: %w\n%s", g.folder, stopped, bytes.TrimSpace(output))
	}
	return errors.Join(closed, stopped, g.output.Close(), os.RemoveAll(g.folder))
}
