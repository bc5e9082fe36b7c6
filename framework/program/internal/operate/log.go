package operate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store"
)

// mostLogged is how many rows waybill log shows at most, and usuallyLogged without --limit.
const (
	mostLogged    = 1000
	usuallyLogged = 20
)

func newLog(p *command.Invocation) *cobra.Command {
	l := &logged{looking: lookingFor(p)}
	cmd := &cobra.Command{
		Use:   "log",
		Short: "List notifications in the log, newest first",
		Long: `List notifications in the log, the newest first, with the state at each sink: pending,
settled, parked in one of the states of waybill parked, and so on. With receipts
(outbox.receipts) it shows delivered instead of settled. waybill why explains each.

The log has no index by key, type or time of occurrence, so that publishing is cheap. A
search therefore covers 100,000 offsets of the log, and the last line says how far it
went and how to continue. --since and an --id that is a UUIDv7, as ids are by default,
find their part of the log at once.

With a configuration it shows the sinks that each notification is routed to, with
--database alone all sinks. It changes nothing.`,
		Example: `  waybill log --key a-6
  waybill log --type 'order.*' --since 1h`,
		Args: command.NoArguments,
		RunE: l.run,
	}
	l.Add(cmd)
	f := cmd.Flags()
	f.StringVar(&l.filter.ID, "id", "", "select the notification with this id")
	f.StringVar(&l.filter.Type, "type", "", "select notifications of this type, or of all types with a prefix (order.*)")
	f.StringVar(&l.filter.Key, "key", "", "select notifications of this key")
	f.Var(&l.since, "since", "select what occurred at this time or later: a time, or how long ago")
	f.Var(&l.until, "until", "select what occurred before this time")
	f.Int64Var(&l.before, "before", 0, "offset before which to search (default: the end of the log)")
	f.IntVar(&l.limit, "limit", usuallyLogged, "how many notifications to list at most")
	return cmd
}

type logged struct {
	looking
	filter       admin.LogFilter
	since, until momentFlag
	before       int64
	limit        int
}

func (l *logged) run(cmd *cobra.Command, _ []string) error {
	l.filter.Since, l.filter.Until = l.since.Time, l.until.Time
	switch {
	case l.limit < 1 || l.limit > mostLogged:
		return command.WrongUsage(cmd, fmt.Errorf("--limit is %d: use 1 to %d", l.limit, mostLogged))
	case l.before < 0:
		return command.WrongUsage(cmd, fmt.Errorf("--before is %d: use an offset of at least 1", l.before))
	}
	if err := l.filter.Validate(); err != nil {
		return command.WrongUsage(cmd, err)
	}
	return l.inEach(cmd, func(o *operator) (command.Look, error) {
		page, err := o.Log(cmd.Context(), l.filter, l.before, l.limit, o.routing)
		return command.Look{View: page, Print: func(w io.Writer) { printLogged(w, page) }}, err
	})
}

func printLogged(w io.Writer, page admin.LogPage) {
	rows := command.NewTable(w, "offset", "occurred on", "type", "key", "id", "sinks")
	for _, r := range page.Rows {
		rows.AppendRow(table.Row{r.Offset, command.TimeText(r.OccurredOn), r.Type, command.OrDash(r.Key), r.ID, cmp.Or(statesText(r.Verdicts), "no route")})
	}
	end := searchedBack(page.Searched, page.Next)
	if len(page.Rows) == 0 {
		end = "found nothing; " + end
	} else {
		rows.Render()
	}
	terminal.Println(w, end)
}

// searchedBack says how far a search of the log went, and how to continue it if that is not all.
func searchedBack(oldest *store.Row, next int64) string {
	text := "searched; the log has no rows there"
	if oldest != nil {
		text = "searched back to offset " + place(oldest)
	}
	if next > 0 {
		text += fmt.Sprintf("; continue with --before %d", next)
	}
	return text
}

// printKey prints the notifications of a key, newest first, each with a line for each sink.
func printKey(w io.Writer, a admin.KeyAnswer) {
	for _, n := range a.Answers {
		terminal.Printf(w, "%s  %s  offset %d  %s\n", n.ID, n.Type, n.Offset, command.TimeText(n.OccurredOn))
		for _, v := range n.Verdicts {
			terminal.Printf(w, "  %s: %s\n", v.Sink, command.FirstLine(verdictText(v), 300))
		}
		if len(n.Verdicts) == 0 || !n.InLog {
			terminal.Printf(w, "  %s\n", n.Text)
		}
	}
	terminal.Println(w, searchedForKey(a))
}

func searchedForKey(a admin.KeyAnswer) string {
	if a.Source != "" {
		return "searched what is parked; the log is " + a.Source + ", whose records are not searched"
	}
	return searchedBack(a.Searched, a.Next)
}

// verdictText is the text of a verdict, with the state before it unless the text begins with it.
func verdictText(v admin.Verdict) string {
	if strings.HasPrefix(v.Text, string(v.Where)) {
		return v.Text
	}
	return string(v.Where) + ": " + v.Text
}

// keyFlags are the flags of waybill why for a key.
type keyFlags struct {
	filter admin.LogFilter
	before int64
	limit  int
}

func (k *keyFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&k.filter.Key, "key", "", "instead of an id: the notifications of this key")
	f.StringVar(&k.filter.Type, "type", "", "with --key: only notifications of this type, or of all types with a prefix (order.*)")
	f.Int64Var(&k.before, "before", 0, "with --key: offset before which to search (default: the end of the log)")
	f.IntVar(&k.limit, "limit", 5, "with --key: how many notifications to show at most")
}

// check returns the mistake of the flags and arguments.
func (k *keyFlags) check(cmd *cobra.Command, args []string) error {
	flags := cmd.Flags()
	switch {
	case flags.Changed("key") && len(args) > 0:
		return errors.New("--key is instead of an id: leave one of them out")
	case flags.Changed("key") && k.filter.Key == "":
		return errors.New("--key is empty: name a key")
	case k.limit < 1 || k.limit > 100:
		return fmt.Errorf("--limit is %d: use 1 to 100", k.limit)
	case k.before < 0:
		return fmt.Errorf("--before is %d: use an offset of at least 1", k.before)
	case flags.Changed("key"):
		return k.filter.Validate()
	case len(args) == 0:
		return errors.New("give the id of a notification, or --key KEY")
	case len(args) > 1:
		return fmt.Errorf("unexpected argument %q", args[1])
	}
	for _, name := range []string{"type", "before", "limit"} {
		if flags.Changed(name) {
			return fmt.Errorf("--%s needs --key", name)
		}
	}
	return nil
}
