package program

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/cwriter"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store"
)

// operatorName is the name under which actions are recorded.
type operatorName string

// defaultOperator returns the current user of this machine, as user@host.
func defaultOperator() string {
	name := "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// looking is shared by commands that read the outbox.
type looking struct {
	*invocation
	flags sourceFlags
	json  bool
}

func (l *looking) add(cmd *cobra.Command) {
	l.flags.add(cmd)
	l.flags.addIn(cmd)
	cmd.Flags().BoolVar(&l.json, "json", false, "print the result as JSON")
}

func (l *looking) open(cmd *cobra.Command) (*operator, func(), error) {
	source, err := l.one(cmd, l.flags)
	if err != nil {
		return nil, nil, err
	}
	return newOperator(cmd.Context(), source, l.options, "")
}

// acting is shared by commands that change the outbox, on behalf of a person.
type acting struct {
	looking
	by string
}

func (a *acting) add(cmd *cobra.Command) {
	a.looking.add(cmd)
	cmd.Flags().StringVar(&a.by, "by", "", "name to record the action under (default: the user of this machine)")
}

func (a *acting) open(cmd *cobra.Command) (*operator, func(), error) {
	if a.by == "" {
		a.by = defaultOperator()
	}
	source, err := a.one(cmd, a.flags)
	if err != nil {
		return nil, nil, err
	}
	return newOperator(cmd.Context(), source, a.options, operatorName(a.by))
}

// bulk is shared by commands that act on many deliveries: they count, ask, show progress
// and report the result.
type bulk struct {
	acting
	yes, dryRun bool
}

func (b *bulk) add(cmd *cobra.Command) {
	b.acting.add(cmd)
	cmd.Flags().BoolVar(&b.yes, "yes", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&b.dryRun, "dry-run", false, "count and change nothing")
}

// check returns an error if the command would have to ask without a terminal.
func (b *bulk) check(cmd *cobra.Command) error {
	if !b.yes && !b.dryRun && (b.json || !isTerminal(cmd.InOrStdin())) {
		return wrongUsage(cmd, errors.New("there is no terminal to ask on: check with --dry-run, then use --yes"))
	}
	return nil
}

// words are the texts of an action for people.
type words struct {
	admin.Operation
	// before is how many deliveries were done by an earlier, interrupted run.
	before int64
	// next returns what to do after an interruption.
	next func(store.Action) string
}

// run asks for confirmation, runs the plan and reports the result. The caller has already
// shown what the plan covers.
func (b *bulk) run(cmd *cobra.Command, p admin.Planned, w words, details any) error {
	total := countText(p.Total(), "delivery", "deliveries")
	switch {
	case b.dryRun && b.json:
		return printJSON(b.stdout, details)
	case b.dryRun:
		terminal.Printf(b.stdout, "would %s %s\n", w.Name, total)
		return nil
	case p.Total() == 0 && !b.json:
		terminal.Printf(b.stdout, "nothing to %s\n", w.Name)
		return nil
	}
	if !b.yes {
		terminal.Printf(b.stdout, "%s %s? [y/N] ", strings.ToUpper(w.Name[:1])+w.Name[1:], total)
		yes, err := saysYes(cmd.Context(), cmd.InOrStdin())
		if err != nil || !yes {
			terminal.Println(b.stdout, "nothing was done")
			return err
		}
	}
	show, end := b.progress(p.Total())
	action, err := p.Run(cmd.Context(), func(a store.Action) { show(a.Count - w.before) })
	end()
	if err != nil && cmd.Context().Err() != nil {
		err = cmd.Context().Err() // the driver's error may not say so
	}
	if b.json && action.ID != "" {
		err = errors.Join(err, printJSON(b.stdout, action))
	}
	if err != nil {
		return fmt.Errorf("%s %d of %s, then stopped; %s: %w", w.Done, action.Count-w.before, total, w.next(action), err)
	}
	if !b.json {
		terminal.Printf(b.stdout, "%s %s (action %s)\n", w.Done, countText(action.Count-w.before, "delivery", "deliveries"), action.ID)
	}
	return nil
}

// again is the next step for actions whose finished deliveries no longer match the filter.
func again(store.Action) string { return "the rest is unchanged: run the command again" }

// progress returns functions that show and end a progress bar; without a terminal they do
// nothing.
func (l *looking) progress(total int64) (show func(done int64), end func()) {
	file, isFile := l.stderr.(*os.File)
	if l.json || !isFile || !cwriter.IsTerminal(int(file.Fd())) {
		return func(int64) {}, func() {}
	}
	bars := mpb.New(mpb.WithOutput(file), mpb.WithWidth(40))
	bar := bars.AddBar(total, mpb.AppendDecorators(decor.CountersNoUnit("%d of %d")))
	show = func(done int64) {
		if done > total {
			bar.SetTotal(done, false) // a continued replay may find more
		}
		bar.SetCurrent(done)
	}
	return show, func() {
		bar.Abort(false)
		bars.Wait()
	}
}

// saysYes reads one line, and returns true for y or yes. It returns early if ctx ends.
func saysYes(ctx context.Context, r io.Reader) (bool, error) {
	answer := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(r).ReadString('\n')
		if err != nil {
			line = ""
		}
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case text := <-answer:
		return text == "y" || text == "yes", nil
	}
}

// isTerminal reports whether a person can answer. A reader that is not a file counts, since
// tests answer through one.
func isTerminal(r io.Reader) bool {
	file, isFile := r.(*os.File)
	return !isFile || cwriter.IsTerminal(int(file.Fd()))
}
