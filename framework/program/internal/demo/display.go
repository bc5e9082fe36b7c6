package demo

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/cwriter"
	"github.com/vbauerster/mpb/v8/decor"
)

// display shows the progress of the demo.
type display interface {
	// Write prints lines, such as logs, without damaging the display.
	io.Writer
	// show is called ten times a second.
	show(progress)
	// close is called before the report is printed.
	close()
}

// progress is the state of the demo at one moment.
type progress struct {
	elapsed               time.Duration
	endless               bool          // the shop has no closing time
	left                  time.Duration // until the shop closes; 0 after that
	committed, rolledBack int           // transactions
	sinks                 []sinkProgress
}

// sinkProgress is the progress of one sink.
type sinkProgress struct {
	name            string
	delivered, owed int
}

// newDisplay returns a display with bars on a terminal, and with a line every linePause elsewhere. If
// stdout is for JSON, the display shows only errors, on stderr.
func newDisplay(c Config, stdout, stderr io.Writer) display {
	file, isFile := stdout.(*os.File)
	switch {
	case c.JSON:
		return &lines{Writer: stderr, stdout: io.Discard}
	case isFile && cwriter.IsTerminal(int(file.Fd())):
		return newBars(stdout)
	}
	return &lines{Writer: stderr, stdout: stdout}
}

// linePause is the time between two lines.
const linePause = 5 * time.Second

// closing says how long the shop is open.
func (p progress) closing() string {
	if p.endless {
		return "until Ctrl-C"
	}
	return fmt.Sprintf("for %s", (p.elapsed + p.left).Round(time.Second))
}

// lines writes lines, for programs without a terminal.
type lines struct {
	io.Writer // for logs
	stdout    io.Writer
	due       time.Duration
}

func (l *lines) show(p progress) {
	if p.elapsed < l.due {
		return
	}
	if l.due == 0 {
		fmt.Fprintln(l.stdout, "A shop is open "+p.closing()+"; Kafka, an HTTP endpoint and a mail server are in this process.")
	} else {
		fmt.Fprintln(l.stdout, p)
	}
	l.due += linePause
}

func (*lines) close() {}

// String returns the progress in one line.
func (p progress) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d committed, %d rolled back; delivered", p.elapsed.Round(time.Second), p.committed, p.rolledBack)
	for i, s := range p.sinks {
		fmt.Fprintf(&b, "%s %d of %d to %s", strings.Repeat(",", min(i, 1)), s.delivered, s.owed, s.name)
	}
	return b.String()
}

// bars shows a line for the shop and a bar for each sink.
type bars struct {
	*mpb.Progress // prints logs above the bars
	shop          *mpb.Bar
	sinks         []*mpb.Bar // created by the first call of show
	recent        []progress // the progress during the last second, the oldest first
	now           atomic.Pointer[look]
}

// look is the data of the bars.
type look struct {
	progress
	rates []float64 // deliveries per second, by sink
}

var _ display = (*bars)(nil)

// barWidth leaves room for the figures on a line of 80 columns.
const barWidth = 40

func newBars(w io.Writer) *bars {
	b := &bars{Progress: mpb.New(mpb.WithOutput(w))}
	b.now.Store(new(look))
	return b
}

func (b *bars) show(p progress) {
	b.recent = append(b.recent, p)
	if len(b.recent) > 11 {
		b.recent = b.recent[1:]
	}
	b.now.Store(&look{progress: p, rates: rates(b.recent[0], p)})
	if b.shop == nil {
		b.add(p)
	}
	for i, s := range p.sinks {
		b.sinks[i].SetTotal(int64(max(s.owed, 1)), false)
		b.sinks[i].SetCurrent(int64(s.delivered))
	}
}

func rates(before, now progress) []float64 {
	list := make([]float64, len(now.sinks))
	for i := range list {
		list[i] = perSecond(now.sinks[i].delivered-before.sinks[i].delivered, now.elapsed-before.elapsed)
	}
	return list
}

func (b *bars) add(p progress) {
	b.shop = b.MustAdd(0, mpb.NopStyle().Build(), mpb.PrependDecorators(
		decor.Any(func(decor.Statistics) string { return b.now.Load().shop() })))
	for i, s := range p.sinks {
		b.sinks = append(b.sinks, b.AddBar(0,
			mpb.BarWidth(barWidth),
			mpb.PrependDecorators(decor.Name(s.name, decor.WCSyncSpaceR)),
			mpb.AppendDecorators(
				decor.CountersNoUnit("%d of %d", decor.WCSyncSpace),
				decor.Any(func(decor.Statistics) string { return fmt.Sprintf("%.0f/s", b.now.Load().rates[i]) }, decor.WCSyncSpace),
			)))
	}
}

// shop returns the line above the bars.
func (p progress) shop() string {
	state := "closed"
	switch {
	case p.left > 0:
		state = fmt.Sprintf("open for %.0fs", math.Ceil(p.left.Seconds()))
	case p.endless:
		state = "open until Ctrl-C"
	}
	return fmt.Sprintf(" shop  %s: %d committed, %d rolled back", state, p.committed, p.rolledBack)
}

// close leaves the bars as they are.
func (b *bars) close() {
	for _, bar := range slices.Concat([]*mpb.Bar{b.shop}, b.sinks) {
		if bar != nil {
			bar.Abort(false)
		}
	}
	b.Wait()
}
