package crashtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/internal/pace"
)

// point is where a program fails, before or after a durable step, and how.
type point struct{ place, action string }

type points []point

// kill reports whether the program may die at one of them.
func (p points) kill() bool {
	return slices.ContainsFunc(p, func(p point) bool { return p.action == "panic" })
}

// set makes the program fail that looks into a folder.
func (p points) set(folder string) error {
	for _, point := range p {
		file := filepath.Join(folder, point.place)
		if err := os.WriteFile(file+"~", []byte(point.action), 0o600); err != nil {
			return err
		}
		if err := os.Rename(file+"~", file); err != nil { // so that the program finds the whole text
			return err
		}
	}
	return nil
}

// unset ends that, and returns which points the program has met.
func (p points) unset(folder string) (met points, err error) {
	for _, point := range p {
		if err := os.Remove(filepath.Join(folder, point.place)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	list := filepath.Join(folder, failpoint.Met)
	text, err := os.ReadFile(list)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	met = slices.DeleteFunc(slices.Clone(p), func(p point) bool { return !strings.Contains(string(text), p.place+"\n") })
	return met, errors.Join(err, os.Remove(list))
}

// failStep makes a step of a forwarder fail, whose configuration changes meanwhile, so that it takes more kinds of steps
// than usually. If that kills it, it is started again.
func (h *harness) failStep(ctx context.Context, f *forwarder, s step) error {
	f.wanted.Store(s.points.kill())
	if err := s.points.set(f.failpoints); err != nil {
		return err
	}
	if h.config.Reload != nil {
		if err := h.reload(f); err != nil && !s.points.kill() {
			return err
		}
	}
	select {
	case <-f.ended:
	case <-time.After(s.length):
	case <-ctx.Done():
	}
	met, err := s.points.unset(f.failpoints)
	if err != nil {
		return err
	}
	h.met(met)
	if !met.kill() {
		f.wanted.Store(false)
		return nil
	}
	select {
	case <-f.ended:
		return h.startForwarder(f)
	case <-time.After(endTimeout):
		return fmt.Errorf("%w: it goes on after a panic at one of %v", ErrEnded, met)
	}
}

// met counts the points that a program has met.
func (h *harness) met(met points) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range met {
		h.report.Points[p.place]++
	}
}

// act lets a person do something, and undo it after a while.
func (h *harness) act(ctx context.Context, s step) error {
	a := &h.config.Acts[s.victim]
	folder, err := os.MkdirTemp(h.folder, "act")
	if err != nil {
		return err
	}
	if err := s.points.set(folder); err != nil {
		return err
	}
	err = h.perform(ctx, a.Command(h.dsn), folder)
	met, failed := s.points.unset(folder)
	if failed != nil {
		return failed
	}
	h.met(met)
	h.mu.Lock()
	h.report.Acts++
	if err == nil {
		h.report.Done++
	}
	h.mu.Unlock()
	pace.Sleep(ctx, s.length)
	if a.Undo == nil {
		return nil
	}
	return retry(ctx, func() error { return h.perform(ctx, a.Undo(h.dsn), folder) })
}

// perform runs a command to its end.
func (h *harness) perform(ctx context.Context, command *exec.Cmd, folder string) error {
	command.Env = append(command.Environ(), failpoint.Variable+"="+folder)
	if err := h.starter.start(command); err != nil {
		return err
	}
	p := watch(command, "act", func() {}, nil)
	p.wanted.Store(true)
	select {
	case <-p.ended:
	case <-time.After(endTimeout):
		p.kill()
	case <-ctx.Done():
		p.kill()
	}
	return p.err
}
