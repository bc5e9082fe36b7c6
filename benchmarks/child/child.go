// Package child runs parts of a comparison as processes of their own: the same program,
// started again with another task. A child ends with its parent, however that ends:
// its input is a pipe that only the parent holds open.
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

// variable tells a process that it is a child, and its task.
const variable = "WAYBILL_PEERS_CHILD"

// task is what a child does; one field is set.
type task struct {
	Busy  bool        `json:"busy,omitempty"`
	Relay *Delivery   `json:"relay,omitempty"`
	Stage *peer.Stage `json:"stage,omitempty"`
}

// Main does the task of a process that is a child, and ends it; in any other it does
// nothing. Programs that start children, and tests, call it first.
func Main() {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	var t task
	err := json.Unmarshal([]byte(text), &t)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent, or when it has enough
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

// process is a child as its parent sees it.
type process struct {
	command    *exec.Cmd
	input      io.Closer
	output     io.Reader
	complaints *bytes.Buffer
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
	complaints := new(bytes.Buffer)
	command.Stderr = complaints
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
	return &process{command, input, output, complaints}, nil
}

// ID is the process's.
func (p *process) ID() int { return p.command.Process.Pid }

// wait returns how it ended.
func (p *process) wait() error {
	if err := p.command.Wait(); err != nil {
		return fmt.Errorf("%s as a child: %w\n%s", p.command, err, bytes.TrimSpace(p.complaints.Bytes()))
	}
	return nil
}
