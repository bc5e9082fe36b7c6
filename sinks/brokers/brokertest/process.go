package brokertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is a running program in a separate process group. So Ctrl-C in the terminal does not
// reach it, and the processes that it starts end with it.
type process struct {
	cmd   *exec.Cmd
	log   string // the file with its output
	ended chan struct{}
}

func start(cmd *exec.Cmd, log string) (*process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, log: log, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its log says how it ended
		close(p.ended)
	}()
	return p, nil
}

// waitUntilListening waits until the process accepts connections.
func (p *process) waitUntilListening(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for !accepts(ctx, address) {
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended while it started:\n%s", p.name(), p.lastLines())
		case <-ctx.Done():
			return fmt.Errorf("%s does not listen: %w\n%s", p.name(), ctx.Err(), p.lastLines())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// accepts reports whether something listens at the address.
func accepts(ctx context.Context, address string) bool {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	return err == nil && connection.Close() == nil
}

// stop ends the process with SIGTERM, and kills it after the timeout. It does nothing if the
// process has already ended.
func (p *process) stop() error {
	select {
	case <-p.ended:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(timeout):
		return errors.Join(fmt.Errorf("%s did not stop and was killed:\n%s", p.name(), p.lastLines()), p.kill())
	}
}

// kill kills the process group.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	<-p.ended
	return nil
}

// signal signals the process group.
func (p *process) signal(s syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, s) }

func (p *process) name() string { return filepath.Base(p.cmd.Path) }

func (p *process) lastLines() string {
	output, _ := os.ReadFile(p.log) // without a log there are no lines
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
