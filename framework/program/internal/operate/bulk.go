package operate

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/cwriter"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store"
)

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
	command.Looking
	by string // who acts on the outbox; "" for the user of this machine
}

func lookingFor(p *command.Invocation) looking {
	return looking{Looking: command.Looking{Invocation: p}}
}

func (l *looking) open(cmd *cobra.Command) (*operator, func(), error) {
	source, err := l.One(cmd, l.Flags)
	if err != nil {
		return nil, nil, err
	}
	return newOperator(cmd.Context(), source, l.Options, cmp.Or(l.by, defaultOperator()))
}

// inOne opens the only database, and prints what do has found or done there.
func (l *looking) inOne(cmd *cobra.Command, do func(o *operator) (command.Look, error)) error {
	o, cleanup, err := l.open(cmd)
	if err != nil {
		return err
	}
	defer cleanup()
	found, err := do(o)
	if err != nil {
		return err
	}
	return l.Show(found)
}

// inEach is Each with an operator.
func (l *looking) inEach(cmd *cobra.Command, lookIn func(o *operator) (command.Look, error)) error {
	return l.Each(cmd, func(source config.Source) (command.Look, error) {
		o, cleanup, err := newOperator(cmd.Context(), source, l.Options, "")
		if err != nil {
			return command.Look{}, err
		}
		defer cleanup()
		return lookIn(o)
	})
}

// acting is shared by commands that change the outbox, on behalf of a person.
type acting struct{ looking }

func (a *acting) Add(cmd *cobra.Command) {
	a.looking.Add(cmd)
	cmd.Flags().StringVar(&a.by, "by", "", "name to record the action under (default: the user of this machine)")
}

// bulk is shared by commands that act on many deliveries: they count, ask, show progress
// and report the result.
type bulk struct {
	acting
	yes, dryRun bool
}

func (b *bulk) Add(cmd *cobra.Command) {
	b.acting.Add(cmd)
	cmd.Flags().BoolVar(&b.yes, "yes", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&b.dryRun, "dry-run", false, "count and change nothing")
}

// check returns an error if the command would have to ask without a terminal.
func (b *bulk) check(cmd *cobra.Command) error {
	if !b.yes && !b.dryRun && (b.JSON || !command.IsTerminal(cmd.InOrStdin())) {
		return command.WrongUsage(cmd, errors.New("there is no terminal to ask on: check with --dry-run, then use --yes"))
	}
	return nil
}

// words are the texts of an action for people.
type words struct {
	admin.Operation
	// one and many name what is counted: a delivery, unless they are set.
	one, many string
	// before is how many deliveries were done by an earlier, interrupted run.
	before int64
	// next returns what to do after an interruption.
	next func(store.Action) string
}

// run asks for confirmation, runs the plan and reports the result. The caller has already
// shown what the plan covers.
func (b *bulk) run(cmd *cobra.Command, p admin.Planned, w words, details any) error {
	counted := func(n int64) string {
		return command.CountText(n, cmp.Or(w.one, "delivery"), cmp.Or(w.many, "deliveries"))
	}
	total := counted(p.Total())
	switch {
	case b.dryRun && b.JSON:
		return command.PrintJSON(b.Stdout, details)
	case b.dryRun:
		terminal.Printf(b.Stdout, "would %s %s\n", w.Name, total)
		return nil
	case p.Total() == 0 && !b.JSON:
		terminal.Printf(b.Stdout, "nothing to %s\n", w.Name)
		return nil
	}
	if !b.yes {
		terminal.Printf(b.Stdout, "%s %s? [y/N] ", strings.ToUpper(w.Name[:1])+w.Name[1:], total)
		yes, err := command.SaysYes(cmd.Context(), cmd.InOrStdin())
		if err != nil || !yes {
			terminal.Println(b.Stdout, "nothing was done")
			return err
		}
	}
	show, end := b.progress(p.Total())
	action, err := p.Run(cmd.Context(), func(a store.Action) { show(a.Count - w.before) })
	end()
	if err != nil && cmd.Context().Err() != nil {
		err = cmd.Context().Err() // the driver's error may not say so
	}
	if b.JSON && action.ID != "" {
		err = errors.Join(err, command.PrintJSON(b.Stdout, action))
	}
	if err != nil {
		return fmt.Errorf("%s %d of %s, then stopped; %s: %w", w.Done, action.Count-w.before, total, w.next(action), err)
	}
	if !b.JSON {
		terminal.Printf(b.Stdout, "%s %s (action %s)\n", w.Done, counted(action.Count-w.before), action.ID)
	}
	return nil
}

// again is the next step for actions whose finished deliveries no longer match the filter.
func again(store.Action) string { return "the rest is unchanged: run the command again" }

// progress returns functions that show and end a progress bar; without a terminal they do
// nothing.
func (l *looking) progress(total int64) (show func(done int64), end func()) {
	file, isFile := l.Stderr.(*os.File)
	if l.JSON || !isFile || !cwriter.IsTerminal(int(file.Fd())) {
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
