package operate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store"
)

func newTrace(p *command.Invocation) *cobra.Command {
	t := &trace{looking: lookingFor(p)}
	cmd := &cobra.Command{
		Use:   "trace ID|CORRELATION",
		Short: "Show a notification and everything that it caused",
		Long: `Show the notifications of one correlation as a tree, each below the one that caused it,
with id, type, key, age, the state at each sink and the last error. The argument is the
correlation id, or the id of any of the notifications. A notification is caused by the
one whose handler published it.

A search covers a million offsets of the log and all parked deliveries, and shows at most
a thousand notifications. It starts at the time in the id if that is a UUIDv7, as ids are
by default; otherwise it covers the end of the log. The output says which offsets were
searched; --from searches others.

With a configuration it shows the sinks that each notification is routed to, with
--database alone all sinks. The exit code is 1 if nothing was found.`,
		Example: `  waybill trace 0198c2f1-7d2e-7c55-9d6f-0f4d1f2a3b4c
  waybill trace request-4711 --from 1000001`,
		Args: oneID,
		RunE: t.run,
	}
	t.Add(cmd)
	cmd.Flags().Int64Var(&t.from, "from", 0, "offset of the log to search from")
	return cmd
}

type trace struct {
	looking
	from int64
}

func (t *trace) run(cmd *cobra.Command, args []string) error {
	if args[0] == "" {
		return command.WrongUsage(cmd, errors.New("name the id of a notification, or a correlation id"))
	}
	if t.from < 0 {
		return command.WrongUsage(cmd, fmt.Errorf("--from is %d: use an offset of at least 1", t.from))
	}
	return t.inEach(cmd, func(o *operator) (command.Look, error) {
		tree, err := o.Tree(cmd.Context(), args[0], t.from, o.routing)
		if err != nil {
			return command.Look{}, err
		}
		found := command.Look{View: tree}
		if tree.Count > 0 {
			found.Print = func(w io.Writer) { printTree(w, tree, time.Now()) }
		} else {
			found.Missing = fmt.Errorf("found nothing of %q; %s", args[0], searched(tree))
		}
		return found, nil
	})
}

func printTree(w io.Writer, t admin.Tree, now time.Time) {
	terminal.Printf(w, "correlation: %s\n%s\n\n", t.CorrelationID, searched(t))
	for _, root := range t.Roots {
		if root.CausationID != "" {
			terminal.Printf(w, "caused by %s, which was not found:\n", root.CausationID)
		}
		printBranch(w, root, "", now)
	}
}

// searched describes what was searched, and how to continue.
func searched(t admin.Tree) string {
	var b strings.Builder
	if t.First == nil || t.Last == nil {
		b.WriteString("searched: what is parked; the log has no rows there")
	} else {
		fmt.Fprintf(&b, "searched: what is parked, and offsets %s to %s", place(t.First), place(t.Last))
	}
	if t.Omitted > 0 {
		fmt.Fprintf(&b, "; %d more parked deliveries are not shown", t.Omitted)
	}
	if t.Next > 0 {
		fmt.Fprintf(&b, "; continue with --from %d", t.Next)
	}
	if t.First != nil && t.First.Offset > t.Oldest {
		fmt.Fprintf(&b, "; the log begins at offset %d", t.Oldest)
	}
	return b.String()
}

func place(r *store.Row) string {
	return fmt.Sprintf("%d (%s)", r.Offset, command.TimeText(r.OccurredOn))
}

// printBranch prints a line for the notification, one for each error, and what it caused,
// indented.
func printBranch(w io.Writer, b *admin.Branch, indent string, now time.Time) {
	terminal.Printf(w, "%s%s  %s  %s  %s  %s\n", indent, b.ID, b.Type, command.OrDash(b.Key), ageText(max(0, now.Sub(b.OccurredOn))), cmp.Or(statesText(b.Verdicts), b.Text))
	for _, v := range b.Verdicts {
		if failure := joined(v.Class, v.LastError); failure != "" {
			terminal.Printf(w, "%s    %s: %s\n", indent, v.Sink, command.FirstLine(failure, 300))
		}
	}
	for _, caused := range b.Caused {
		printBranch(w, caused, indent+"  ", now)
	}
}

// joined returns an error after its class, either of which may be "".
func joined(class, cause string) string {
	if class == "" || cause == "" {
		return cmp.Or(cause, class)
	}
	return class + ": " + cause
}

// statesText returns the state at each sink.
func statesText(verdicts []admin.Verdict) string {
	states := make([]string, len(verdicts))
	for i, v := range verdicts {
		states[i] = v.Sink + " " + stateText(v)
	}
	return strings.Join(states, ", ")
}

// stateText returns the state of a delivery in a word or two.
func stateText(v admin.Verdict) string {
	switch {
	case v.Where == admin.Waiting || v.Where == admin.Unread:
		return "pending"
	case v.Where == admin.Retrying && v.MaxAttempts > 0:
		return fmt.Sprintf("%s %d/%d", v.Where, v.Attempt, v.MaxAttempts)
	case v.Where == admin.Retrying:
		return fmt.Sprintf("%s %d", v.Where, v.Attempt)
	}
	return string(v.Where)
}

// ageText returns a duration in one or two units.
func ageText(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
