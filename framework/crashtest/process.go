package crashtest

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// starter starts processes from a thread that outlives them, since the kernel signals the death of a
// parent as soon as the thread that forked ends.
type starter struct {
	tasks chan func()
	done  chan struct{}
}

func newStarter() *starter {
	s := &starter{tasks: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for task := range s.tasks {
			task()
		}
	}()
	return s
}

// start starts a command that ends with this process.
func (s *starter) start(command *exec.Cmd) (err error) {
	done := make(chan struct{})
	s.tasks <- func() {
		defer close(done)
		dieWithParent(command)
		err = command.Start()
	}
	<-done
	return err
}

func (s *starter) stop() {
	close(s.tasks)
	<-s.done
}

// process is a started process. Only its id is used to end it.
type process struct {
	*exec.Cmd
	began  time.Time
	wanted atomic.Bool   // whether it was asked to end
	ended  chan struct{} // closed when Wait has returned
	err    error         // of Wait; read it after that
}

// watch waits for the end of a started command, and reports an end that was not requested.
func watch(command *exec.Cmd, name string, before func(), fail context.CancelCauseFunc) *process {
	p := &process{Cmd: command, began: time.Now(), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		before()
		p.err = command.Wait()
		if !p.wanted.Load() {
			fail(fmt.Errorf("%w: %s: %s", ErrEnded, name, command.ProcessState))
		}
	}()
	return p
}

// kill ends the process at once, even if it is stopped, and waits until it has ended. It may be
// called again, and on a nil process.
func (p *process) kill() {
	if p == nil {
		return
	}
	p.wanted.Store(true)
	_ = p.Process.Kill() // an error means that it has ended
	<-p.ended
}

// terminate asks the process to stop gracefully. If it has just been started, the signal may end it.
func (p *process) terminate() error {
	p.wanted.Store(true)
	starting := time.Since(p.began) < startTime
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	if err := p.await("SIGTERM"); err != nil && (!starting || !p.endedBy(syscall.SIGTERM)) {
		return err
	}
	return nil
}

// endedBy reports whether a signal has ended the process, which did not handle it.
func (p *process) endedBy(signal syscall.Signal) bool {
	status, ok := p.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == signal
}

// await waits until a process that was asked to stop has stopped.
func (p *process) await(how string) error {
	select {
	case <-p.ended:
		if p.err != nil {
			return fmt.Errorf("%w: after %s: %w", ErrEnded, how, p.err)
		}
		return nil
	case <-time.After(endTimeout):
		p.kill()
		return fmt.Errorf("%w: still running %s after %s", ErrEnded, endTimeout, how)
	}
}
