package testserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// supervise runs the server as a child process, and executes commands from its input, one per line.
// When its input ends, because the process that started it has ended or died, it ends the server with a
// signal and removes the folder. If the server's user may not remove it from its parent folder, an empty
// folder remains. By then it may have lost the reader of its output.
const supervise = `
trap '' PIPE INT TERM
folder=$1
last=$2
shift 2
pid=
end() {
	[ -z "$pid" ] || { kill -"$1" "$pid"; wait "$pid"; } 2>/dev/null
	pid=
}
while read -r word signal; do
	case $word in
	start)
		end "$last" # a start that timed out may still run
		"$@" --port="$(cat "$folder/port")" >>"$folder/log" 2>&1 </dev/null &
		pid=$!
		;;
	stop) end "$signal" ;;
	alive) kill -0 "$pid" 2>/dev/null || { echo no; continue; } ;;
	esac
	echo yes
done
end "$last"
cd / && rm -rf "$folder" 2>/dev/null
exit 0
`

// environment is that of the server and its programs: without variables that would change them, and with
// messages in English.
var environment = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}

// Spec is how to start a server.
type Spec struct {
	// Name is the usual name of the server's user.
	Name string
	// Dir is the parent of the server's temporary folder; "" means the system's folder.
	Dir string
	// Command returns the server's program and its arguments, for a folder, without the port.
	Command func(folder string) []string
	// Signal ends the server at once, such as KILL.
	Signal string
	// Fill makes what the server needs in its folder.
	Fill func(ctx context.Context, p *Process) error
	// Ping returns nil if the server at a port answers.
	Ping func(ctx context.Context, port int) error
}

// Process is a server with its data in a temporary folder. It ends with the process that started it, even if
// that is killed: a shell that supervises it holds the reading end of a pipe, and only this process holds
// the writing end.
type Process struct {
	Folder string
	Port   int

	spec     Spec
	account  Account
	shell    *exec.Cmd
	commands io.WriteCloser
	answers  *bufio.Reader
}

// Launch makes the folder, fills it and starts the server. The shell comes first, so that nothing is left
// behind.
func Launch(ctx context.Context, spec Spec) (*Process, error) {
	account, err := AccountFor(spec.Name)
	if err != nil {
		return nil, err
	}
	folder, err := account.MakeFolder(spec.Dir, "waybill-"+spec.Name+"-*")
	if err != nil {
		return nil, err
	}
	p := &Process{Folder: folder, spec: spec, account: account}
	if err := p.supervise(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	if err := spec.Fill(ctx, p); err != nil {
		return nil, errors.Join(err, p.Release())
	}
	for range startTries {
		if p.Port, err = FreePort(); err != nil {
			break
		}
		if err = p.Start(ctx); err == nil {
			return p, nil
		}
		if isFree(p.Port) {
			break // it was not because another process has taken the port
		}
	}
	return nil, errors.Join(err, p.Release())
}

// Path returns the path of a file in the server's folder.
func (p *Process) Path(name string) string { return filepath.Join(p.Folder, name) }

// supervise starts the shell that starts and stops the server.
func (p *Process) supervise() error {
	args := append([]string{"-c", supervise, "sh", p.Folder, p.spec.Signal}, p.spec.Command(p.Folder)...)
	p.shell = p.Command(context.Background(), "/bin/sh", args...)
	commands, err := p.shell.StdinPipe()
	if err != nil {
		return err
	}
	answers, err := p.shell.StdoutPipe()
	if err != nil {
		return err
	}
	p.commands, p.answers = commands, bufio.NewReader(answers)
	return p.shell.Start()
}

// Command returns a command that runs as the server's user, in its folder.
func (p *Process) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = p.Folder // the server's user may have no access to the caller's folder
	command.Env = append([]string{}, environment...)
	command.SysProcAttr = p.account.Attributes()
	return command
}

// Run runs a command to its end. Its error has the end of the output.
func Run(command *exec.Cmd) error {
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", command, err, bytes.TrimSpace(output[max(0, len(output)-tail):]))
	}
	return nil
}

// Start starts the server at its port, and waits until it answers. Its error has the end of the server's log.
func (p *Process) Start(ctx context.Context) error {
	if err := os.WriteFile(p.Path("port"), []byte(strconv.Itoa(p.Port)), 0o644); err != nil {
		return err
	}
	if err := p.command("start"); err != nil {
		return err
	}
	for {
		err := p.spec.Ping(ctx, p.Port)
		if err == nil {
			return nil
		}
		if dead := p.command("alive"); dead != nil || ctx.Err() != nil {
			return p.withLog(errors.Join(err, dead))
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the server with a signal, such as TERM, and keeps its files.
func (p *Process) Stop(signal string) error { return p.command("stop " + signal) }

// Release ends the server and removes everything before it returns.
func (p *Process) Release() error {
	closed := p.commands.Close()
	return errors.Join(closed, p.shell.Wait(), os.RemoveAll(p.Folder))
}

// command sends a line to the shell and waits until the command is done.
func (p *Process) command(line string) error {
	if _, err := fmt.Fprintln(p.commands, line); err != nil {
		return err
	}
	answer, err := p.answers.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the shell of the server has ended: %w", err)
	}
	if strings.TrimSpace(answer) != "yes" {
		return errors.New("the server has ended")
	}
	return nil
}

// tail is how much of a program's output or a server's log an error has.
const tail = 2048

// withLog adds the end of the server's log to an error.
func (p *Process) withLog(err error) error {
	log, readErr := os.ReadFile(p.Path("log"))
	if readErr != nil { // there may be none yet
		return err
	}
	return fmt.Errorf("%w\nthe server's log ends with:\n%s", err, log[max(0, len(log)-tail):])
}
