package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// start starts the program. It starts no goroutine; the child's run does.
func (s *Sink) start() (*child, error) {
	select {
	case <-s.stopping:
		return nil, errClosed
	default:
	}
	program, err := s.program()
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: program, Args: s.config.Command, Dir: s.config.Dir, Env: s.config.environment(os.Environ())}
	leadGroup(cmd)

	c := &child{
		sink:       s,
		cmd:        cmd,
		exited:     make(chan struct{}),
		ready:      make(chan struct{}),
		rejecting:  make(chan struct{}),
		stopWrite:  make(chan struct{}),
		fault:      make(chan error, 1),
		outgoing:   make(chan *pending),
		wake:       make(chan struct{}, 1),
		pending:    make(map[int64]*pending),
		lastActive: time.Now(),
	}
	if err := c.startWithPipes(); err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	c.logger = s.logger.With("pid", cmd.Process.Pid)
	c.logger.Debug("the program is started", "program", program)
	return c, nil
}

// program returns the file to execute. Unlike in os/exec, a relative path is relative to the
// folder in which the program runs, as in a shell in that folder.
func (s *Sink) program() (string, error) {
	if s.config.Dir != "" {
		info, err := os.Stat(s.config.Dir)
		if err != nil {
			return "", fmt.Errorf("dir: %w", err)
		}
		if !info.IsDir() {
			return "", fmt.Errorf("dir: %s is not a directory", s.config.Dir)
		}
	}
	name := s.config.Command[0]
	if filepath.Base(name) != name && !filepath.IsAbs(name) {
		name = filepath.Join(s.config.Dir, name)
	}
	found, err := exec.LookPath(name)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("command: there is no program %q in PATH: %w", name, err)
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("command: there is no program %s: %w", name, err)
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("command: %s cannot be executed; make it executable, or put its interpreter before it: %w", name, err)
	case err != nil:
		return "", fmt.Errorf("command: %w", err)
	}
	return filepath.Abs(found)
}

// startWithPipes starts the process. It makes the pipes itself, because those of exec.Cmd are
// closed by Wait while there may still be answers in them.
func (c *child) startWithPipes() (err error) {
	var ends [6]*os.File
	defer func() {
		unused := []*os.File{ends[0], ends[3], ends[5]}
		if err != nil {
			unused = ends[:]
		}
		for _, f := range unused {
			_ = f.Close() // closing nil only returns an error
		}
	}()
	for i := 0; i < len(ends); i += 2 {
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			return err
		}
	}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = ends[0], ends[3], ends[5]
	c.stdin, c.stdout, c.stderr = ends[1], ends[2], ends[4]
	return start(c.cmd)
}
