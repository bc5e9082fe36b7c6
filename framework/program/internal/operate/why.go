package operate

import (
	"fmt"
	"io"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

func newWhy(p *command.Invocation) *cobra.Command {
	w := &why{looking: lookingFor(p)}
	cmd := &cobra.Command{
		Use:   "why ID | --key KEY",
		Short: "Explain where a notification, or those of a key, are at each sink",
		Long: `Explain where a notification is at each of its sinks, and why: delivered, with the
receipt if receipts are kept; waiting in a forwarder; not read yet; retrying after an
error; blocked by another delivery of its key; scheduled; outside of the hours of the
sink; cancelled; in a collection; superseded by a newer one; dead; or without a route. It
also shows whether the sink is paused, throttled or out of reach, and the last five failed
attempts of what is parked.

With --key it explains the latest notifications of a key in short. It finds them in
100,000 offsets of the log and among parked deliveries, and says how to continue.

With a configuration it shows the sinks that the notification is routed to, with
--database alone all sinks. The exit code is 1 if nothing is found.`,
		Example: `  waybill why 0198c2f1-7d2e-7c55-9d6f-0f4d1f2a3b4c
  waybill why --key a-6 --type order.placed`,
		RunE: w.run,
	}
	w.Add(cmd)
	w.of.add(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := w.of.check(cmd, args); err != nil {
			return command.WrongUsage(cmd, err)
		}
		return nil
	}
	return cmd
}

type why struct {
	looking
	of keyFlags
}

func (w *why) run(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return w.key(cmd)
	}
	return w.inEach(cmd, func(o *operator) (command.Look, error) {
		answer, trace, err := o.Look(cmd.Context(), store.TraceQuery{ID: args[0]}, o.routing)
		if err != nil {
			return command.Look{}, err
		}
		found := command.Look{View: answer}
		if answer.Known {
			found.Print = func(w io.Writer) { printAnswer(w, answer, trace.Envelope()) }
		} else {
			found.Missing = fmt.Errorf("%s: %s", args[0], answer.Text)
		}
		return found, nil
	})
}

// key explains the notifications of a key.
func (w *why) key(cmd *cobra.Command) error {
	return w.inEach(cmd, func(o *operator) (command.Look, error) {
		answer, err := o.WhyKey(cmd.Context(), w.of.filter, w.of.before, w.of.limit, o.routing)
		if err != nil {
			return command.Look{}, err
		}
		found := command.Look{View: answer}
		if len(answer.Answers) > 0 {
			found.Print = func(w io.Writer) { printKey(w, answer) }
		} else {
			found.Missing = fmt.Errorf("found no notification of key %q; %s", answer.Key, searchedForKey(answer))
		}
		return found, nil
	})
}

func printAnswer(w io.Writer, a admin.Answer, e *notification.Envelope) {
	terminal.Printf(w, "id:          %s\n", a.ID)
	if a.Type != "" {
		terminal.Printf(w, "type:        %s\nkey:         %s\noffset:      %d\noccurred on: %s\n", a.Type, command.OrDash(a.Key), a.Offset, command.TimeText(a.OccurredOn))
	}
	if a.Type == webhooks.Type && e != nil {
		terminal.Printf(w, "which is:    %s; see waybill endpoints show\n", webhooks.About(e.Metadata))
	}
	if a.Text != "" {
		terminal.Printf(w, "note:        %s\n", a.Text)
	}
	if len(a.Verdicts) == 0 {
		return
	}
	terminal.Println(w)
	verdicts := command.NewTable(w, "sink", "where", "why")
	for _, v := range a.Verdicts {
		verdicts.AppendRow(table.Row{v.Sink, v.Where, command.FirstLine(v.Text, 300)})
	}
	verdicts.Render()
	attempts := command.NewTable(w, "sink", "failed at", "attempt", "class", "took", "by", "error")
	for _, v := range a.Verdicts {
		appendAttempts(attempts, v.Attempts, v.Sink)
	}
	if attempts.Length() > 0 {
		terminal.Println(w)
		attempts.Render()
	}
}

// appendAttempts adds a row for each past attempt, which begins with what is given.
func appendAttempts(t table.Writer, attempts []admin.AttemptView, begin ...any) {
	for _, a := range attempts {
		t.AppendRow(append(slices.Clone(table.Row(begin)),
			command.TimeText(a.Began), a.Number, a.Class, a.Took(), a.Forwarder, command.FirstLine(a.Error, store.MaxPastError)))
	}
}
