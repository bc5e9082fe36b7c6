package operate

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store"
)

func newActions(p *command.Invocation) *cobra.Command {
	a := &actions{looking: looking{command.Looking{Invocation: p}}}
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
	o, cleanup, err := a.open(cmd)
	if err != nil {
		return err
	}
	defer cleanup()
	list, err := o.Actions(cmd.Context(), a.limit)
	if err != nil {
		return err
	}
	if a.JSON {
		return command.PrintJSON(a.Stdout, append([]store.Action{}, list...))
	}
	if len(list) == 0 {
		terminal.Println(a.Stdout, "no actions yet")
		return nil
	}
	t := command.NewTable(a.Stdout, "at", "who", "action", "count", "planned", "state", "ended", "filter", "id")
	for _, action := range list {
		t.AppendRow(table.Row{command.TimeText(action.At), action.Who, action.Name, action.Count, plannedText(action.Planned), action.State, command.TimeOrDash(action.EndedAt), string(action.Filter), action.ID})
	}
	t.Render()
	return nil
}

// plannedText is a dash for actions that count nothing.
func plannedText(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func newActionsCancel(p *command.Invocation) *cobra.Command {
	c := &actionsCancel{acting: acting{looking: looking{command.Looking{Invocation: p}}}}
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel a running action",
		Long: `Cancel an action by its id, in any process. It stops after its current batch, and
changes already made stay. A cancelled replay cannot be continued.

` + command.NeedsDatabaseOnly,
		Example: `  waybill actions cancel 0198c2f1-7d2e-7c55-9d6f-0f4d1f2a3b4c`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return command.WrongUsage(cmd, errors.New("give the id of an action"))
			}
			return command.NoArguments(cmd, args[1:])
		},
		RunE: c.run,
	}
	c.Add(cmd)
	return cmd
}

type actionsCancel struct{ acting }

func (c *actionsCancel) run(cmd *cobra.Command, args []string) error {
	o, cleanup, err := c.open(cmd)
	if err != nil {
		return err
	}
	defer cleanup()
	action, err := o.Cancel(cmd.Context(), args[0])
	switch {
	case err != nil:
		return err
	case c.JSON:
		return command.PrintJSON(c.Stdout, action)
	}
	terminal.Printf(c.Stdout, "cancelled %s %s: %d done\n", action.Name, action.ID, action.Count)
	return nil
}
