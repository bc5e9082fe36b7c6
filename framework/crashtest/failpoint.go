package crashtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/internal/pace"
)

// point is where a program fails, before or after a durable step, and how; nowhere if it is zero.
type point struct{ place, action string }

// kills reports whether the program dies there.
func (p point) kills() bool { return p.action == "panic" }

// set makes the program fail that looks into a folder. It does so until the function that it returns is called, which
// reports whether the program has met the point.
func (p point) set(folder string) (unset func() (met bool, err error), err error) {
	if p.place == "" {
		return func() (bool, error) { return false, nil }, nil
	}
	file, acted := filepath.Join(folder, p.place), filepath.Join(folder, failpoint.Acted)
	if err := os.WriteFile(file+"~", []byte(p.action), 0o600); err != nil {
		return nil, err
	}
	return func() (bool, error) {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
		err := os.Remove(acted)
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	}, os.Rename(file+"~", file) // so that the program finds the whole text
}

// failStep makes a step of a forwarder fail. If that kills it, it is started again.
func (h *harness) failStep(ctx context.Context, f *forwarder, s step) error {
	f.wanted.Store(s.point.kills())
	unset, err := s.point.set(f.failpoints)
	if err != nil {
		return err
	}
	select {
	case <-f.ended:
	case <-time.After(s.length):
	case <-ctx.Done():
	}
	met, err := unset()
	if err != nil {
		return err
	}
	h.met(s.point, met)
	if !met || !s.point.kills() {
		f.wanted.Store(false)
		return nil
	}
	select {
	case <-f.ended:
		return h.startForwarder(f)
	case <-time.After(endTimeout):
		return fmt.Errorf("%w: it goes on after a panic %s", ErrEnded, s.point.place)
	}
}

// met counts a point that a program has met.
func (h *harness) met(p point, met bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if met {
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
	unset, err := s.point.set(folder)
	if err != nil {
		return err
	}
	err = h.perform(ctx, a.Command(h.dsn), folder)
	met, failed := unset()
	if failed != nil {
		return failed
	}
	h.met(s.point, met)
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
