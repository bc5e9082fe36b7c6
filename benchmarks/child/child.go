// Package child runs parts of a comparison in separate processes: the same program, started again
// with another task. A child ends when its parent ends, even if the parent is killed: the child's
// standard input is a pipe that only the parent holds open.
package child

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/waybill-go/waybill/benchmarks/peer"
)

// variable is the environment variable with the task of a child. A process without it is no child.
const variable = "WAYBILL_PEERS_CHILD"

// task is what a child does; one field is set.
type task struct {
	Busy  bool        `json:"busy,omitempty"`
	Relay *Delivery   `json:"relay,omitempty"`
	Stage *peer.Stage `json:"stage,omitempty"`
}

// Main runs the task of a child and exits. In a process that is no child it does nothing. Programs
// and tests that start children call it first.
func Main() {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	var t task
	err := json.Unmarshal([]byte(text), &t)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the parent ends or closes the pipe
		stop()
	}()
	switch {
	case err != nil:
	case t.Busy:
		spin(ctx)
	case t.Relay != nil:
		err = t.Relay.deliver(ctx, os.Stdout)
	case t.Stage != nil:
		err = t.Stage.Deliver(ctx)
	default:
		err = errors.New("no task")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// process is the parent's handle of a child.
type process struct {
	command *exec.Cmd
	input   io.Closer
	output  io.Reader
	stderr  *bytes.Buffer
}

func start(t task) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	command := exec.Command(program)
	command.Env = append(os.Environ(), variable+"="+string(text))
	stderr := new(bytes.Buffer)
	command.Stderr = stderr
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s again: %w", program, err)
	}
	return &process{command, input, output, stderr}, nil
}

// ID returns the id of the process.
func (p *process) ID() int { return p.command.Process.Pid }

// wait waits until the process has ended. It returns an error with the child's output if it failed.
func (p *process) wait() error {
	if err := p.command.Wait(); err != nil {
		return fmt.Errorf("%s as a child: %w\n%s", p.command, err, bytes.TrimSpace(p.stderr.Bytes()))
	}
	return nil
}
