package operate

import (
	"fmt"
	"io"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store"
)

func newActions(p *command.Invocation) *cobra.Command {
	a := &actions{looking: lookingFor(p)}
	cmd := &cobra.Command{
		Use:   "actions",
		Short: "List what people have done to parked deliveries and sinks",
		Long: `List what people have done, newest first: requeues, discards, skips, replays, pauses,
resumes and so on, with who did it, the filter, how many deliveries were planned and
how many were done. It changes nothing.

An action that has neither finished nor made progress for a minute is shown as
interrupted. An interrupted replay can be continued by its id with waybill replay
--continue. A running action can be ended with waybill actions cancel.

--json also has the reasons that people gave, and the network addresses of actions
from the dashboard.`,
		Example: `  waybill actions
  waybill actions --limit 10 --json`,
		Args: command.NoSuchCommand,
		RunE: a.run,
	}
	cmd.AddCommand(newActionsCancel(p))
	a.Add(cmd)
	cmd.Flags().IntVar(&a.limit, "limit", 50, "how many actions to list at most")
	return cmd
}

type actions struct {
	looking
	limit int
}

func (a *actions) run(cmd *cobra.Command, _ []string) error {
	if a.limit < 1 {
		return command.WrongUsage(cmd, fmt.Errorf("--limit is %d: use at least 1", a.limit))
	}
	return a.inOne(cmd, func(o *operator) (command.Look, error) {
		list, err := o.Actions(cmd.Context(), a.limit)
		return command.Look{View: append([]store.Action{}, list...), Print: func(w io.Writer) { printActions(w, list) }}, err
	})
}

func printActions(w io.Writer, list []store.Action) {
	if len(list) == 0 {
		terminal.Println(w, "no actions yet")
		return
	}
	t := command.NewTable(w, "at", "who", "action", "count", "planned", "state", "ended", "filter", "id")
	for _, action := range list {
		t.AppendRow(table.Row{command.TimeText(action.At), action.Who, action.Name, action.Count, plannedText(action.Planned), action.State, command.TimeOrDash(action.EndedAt), string(action.Filter), action.ID})
	}
	t.Render()
}

// plannedText is a dash for actions that count nothing.
func plannedText(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func newActionsCancel(p *command.Invocation) *cobra.Command {
	c := &acting{lookingFor(p)}
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel a running action",
		Long: `Cancel an action by its id, in any process. It stops after its current batch, and
changes already made stay. A cancelled replay cannot be continued.

` + command.NeedsDatabaseOnly,
		Example: `  waybill actions cancel 0198c2f1-7d2e-7c55-9d6f-0f4d1f2a3b4c`,
		Args:    command.Arguments(1, "give the id of an action"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.inOne(cmd, func(o *operator) (command.Look, error) {
				action, err := o.Cancel(cmd.Context(), args[0])
				return command.Look{View: action, Print: func(w io.Writer) {
					terminal.Printf(w, "cancelled %s %s: %d done\n", action.Name, action.ID, action.Count)
				}}, err
			})
		},
	}
	c.Add(cmd)
	return cmd
}
