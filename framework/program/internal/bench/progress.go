package bench

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/cwriter"
	"github.com/vbauerster/mpb/v8/decor"
)

// Progress shows the progress of a bench.
type Progress interface {
	// Write prints lines, such as logs, without damaging the display.
	io.Writer
	// Begin begins a task with a number of steps, and Step begins each step.
	Begin(what string, steps int)
	Step(what string)
	// Now shows what is going on in a step. Watch calls a function regularly for it.
	Now(what string)
	Watch(what func() string)
	// End ends the task.
	End()
	// Close is called before the result is printed.
	Close()
}

// NewProgress draws bars on a terminal and writes a line for each step elsewhere.
func NewProgress(w io.Writer) Progress {
	if file, isFile := w.(*os.File); isFile && cwriter.IsTerminal(int(file.Fd())) {
		return &bars{Progress: mpb.New(mpb.WithOutput(w), mpb.WithWidth(24))}
	}
	return &lines{Writer: w}
}

// lines writes lines, for programs without a terminal.
type lines struct {
	io.Writer
	what string
}

func (l *lines) Begin(what string, _ int) { l.what = what }
func (l *lines) Step(what string)         { fmt.Fprintf(l, "%s: %s\n", l.what, what) }
func (*lines) Now(string)                 {}
func (*lines) Watch(func() string)        {}
func (*lines) End()                       {}
func (*lines) Close()                     {}

// bars shows a bar for the current task, followed by what is going on.
type bars struct {
	*mpb.Progress // prints logs above the bar
	bar           *mpb.Bar
	steps         int64
	step          atomic.Pointer[string]
	now           atomic.Pointer[func() string]
}

var (
	_ Progress = (*lines)(nil)
	_ Progress = (*bars)(nil)
)

func (b *bars) Begin(what string, steps int) {
	b.End()
	b.steps = 0
	b.now.Store(nil)
	b.step.Store(new(string))
	b.bar = b.AddBar(int64(steps),
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(what, decor.WC{W: 8, C: decor.DindentRight})),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return " " + b.text() })))
}

func (b *bars) text() string {
	text := *b.step.Load()
	if now := b.now.Load(); now != nil {
		text += "; " + (*now)()
	}
	return text
}

func (b *bars) Step(what string) {
	b.now.Store(nil)
	b.step.Store(&what)
	if b.bar != nil {
		b.bar.SetCurrent(b.steps)
	}
	b.steps++
}

func (b *bars) Now(what string) { b.Watch(func() string { return what }) }

func (b *bars) Watch(what func() string) { b.now.Store(&what) }

func (b *bars) End() {
	if b.bar != nil {
		b.bar.Abort(true)
		b.bar = nil
	}
}

func (b *bars) Close() {
	b.End()
	b.Wait()
}
