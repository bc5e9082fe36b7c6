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
	"github.com/waybill-go/waybill/framework/store"
)

// operatorName is who acts, as it is recorded.
type operatorName string

// defaultOperator is the user of this machine.
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

// looking is what commands share that show something of the outbox.
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

// acting is what commands share that change something.
type acting struct {
	looking
	by string
}

func (a *acting) add(cmd *cobra.Command) {
	a.looking.add(cmd)
	cmd.Flags().StringVar(&a.by, "by", "", "who acts, for the record (default: the user of this machine)")
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

// bulk is what commands share that act on many deliveries: they count first, ask,
// show how far they are, and tell what was done.
type bulk struct {
	acting
	yes, dryRun bool
}

func (b *bulk) add(cmd *cobra.Command) {
	b.acting.add(cmd)
	cmd.Flags().BoolVar(&b.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&b.dryRun, "dry-run", false, "only count")
}

// check refuses to ask where there is no terminal.
func (b *bulk) check(cmd *cobra.Command) error {
	if !b.yes && !b.dryRun && (b.json || !isTerminal(cmd.InOrStdin())) {
		return wrongUsage(cmd, errors.New("there is no terminal to ask on: check with --dry-run, then use --yes"))
	}
	return nil
}

// plan is something that was counted and not done yet.
type plan interface {
	Total() int64
	Run(ctx context.Context, progress admin.Progress) (store.Action, error)
}

// words are how an action is talked of.
type words struct {
	// verb is as in "requeue 3 deliveries?", done as in "requeued 3 deliveries".
	verb, done string
	// before is how much of the action was done already.
	before int64
	// wayOn says how to go on after an interruption, given the action.
	wayOn func(store.Action) string
}

// run asks, acts and tells. What the plan is about was shown already.
func (b *bulk) run(cmd *cobra.Command, p plan, w words, details any) error {
	total := countText(p.Total(), "delivery", "deliveries")
	switch {
	case b.dryRun && b.json:
		return printJSON(b.stdout, details)
	case b.dryRun:
		fmt.Fprintf(b.stdout, "would %s %s\n", w.verb, total)
		return nil
	case p.Total() == 0 && !b.json:
		fmt.Fprintf(b.stdout, "nothing to %s\n", w.verb)
		return nil
	}
	if !b.yes {
		fmt.Fprintf(b.stdout, "%s %s? [y/N] ", strings.ToUpper(w.verb[:1])+w.verb[1:], total)
		yes, err := saysYes(cmd.Context(), cmd.InOrStdin())
		if err != nil || !yes {
			fmt.Fprintln(b.stdout, "nothing is done")
			return err
		}
	}
	show, end := b.progress(p.Total())
	action, err := p.Run(cmd.Context(), func(a store.Action) { show(a.Count - w.before) })
	end()
	if err != nil && cmd.Context().Err() != nil {
		err = cmd.Context().Err() // whatever the driver made of it
	}
	if b.json && action.ID != "" {
		err = errors.Join(err, printJSON(b.stdout, action))
	}
	if err != nil {
		return fmt.Errorf("%s %d of %s, each whole; %s: %w", w.done, action.Count-w.before, total, w.wayOn(action), err)
	}
	if !b.json {
		fmt.Fprintf(b.stdout, "%s %s (action %s)\n", w.done, countText(action.Count-w.before, "delivery", "deliveries"), action.ID)
	}
	return nil
}

// again is how to go on where what is done does not match any more.
func again(store.Action) string { return "the rest is as it was: run the command again" }

// progress shows how far it is, if there is a terminal.
func (l *looking) progress(total int64) (show func(done int64), end func()) {
	file, isFile := l.stderr.(*os.File)
	if l.json || !isFile || !cwriter.IsTerminal(int(file.Fd())) {
		return func(int64) {}, func() {}
	}
	bars := mpb.New(mpb.WithOutput(file), mpb.WithWidth(40))
	bar := bars.AddBar(total, mpb.AppendDecorators(decor.CountersNoUnit("%d of %d")))
	show = func(done int64) {
		if done > total {
			bar.SetTotal(done, false) // of a replay that goes on
		}
		bar.SetCurrent(done)
	}
	return show, func() {
		bar.Abort(false)
		bars.Wait()
	}
}

// saysYes reads one line; only yes in so many words counts. A signal ends the wait.
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

// isTerminal says whether a person may answer. A reader that is no file was put
// there to answer.
func isTerminal(r io.Reader) bool {
	file, isFile := r.(*os.File)
	return !isFile || cwriter.IsTerminal(int(file.Fd()))
}
