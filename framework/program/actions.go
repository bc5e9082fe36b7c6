package program

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/store"
)

func newActions(p *invocation) *cobra.Command {
	a := &actions{looking: looking{invocation: p}}
	cmd := &cobra.Command{
		Use:   "actions",
		Short: "List what people have done to parked deliveries and sinks",
		Long: `List the latest requeues, discards, skips, replays, pauses, resumes and more, newest
first: who has done them, to what, to how many, and how many were planned. One without
a batch for a minute, and without an end, is interrupted; a replay can be continued by
its id. waybill actions cancel ends one that is under way. --json has the reasons too,
and the addresses from which the dashboard was used.`,
		Args: noSuchCommand,
		RunE: a.run,
	}
	cmd.AddCommand(newActionsCancel(p))
	a.add(cmd)
	cmd.Flags().IntVar(&a.limit, "limit", 50, "how many at most")
	return cmd
}

type actions struct {
	looking
	limit int
}

func (a *actions) run(cmd *cobra.Command, _ []string) error {
	if a.limit < 1 {
		return wrongUsage(cmd, fmt.Errorf("--limit is %d: use at least 1", a.limit))
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
	if a.json {
		return printJSON(a.stdout, append([]store.Action{}, list...))
	}
	if len(list) == 0 {
		fmt.Fprintln(a.stdout, "no actions yet")
		return nil
	}
	t := newTable(a.stdout, "at", "who", "action", "count", "planned", "state", "ended", "filter", "id")
	for _, action := range list {
		t.AppendRow(table.Row{timeText(action.At), action.Who, action.Name, action.Count, plannedText(action.Planned), action.State, timeOrDash(action.EndedAt), string(action.Filter), action.ID})
	}
	t.Render()
	return nil
}

// plannedText is empty where there is nothing to count.
func plannedText(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func newActionsCancel(p *invocation) *cobra.Command {
	c := &actionsCancel{acting: acting{looking: looking{invocation: p}}}
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "End an action that is under way",
		Long: `Cancel an action by its id, in whatever process it runs: it does nothing more, behind
the batch that is being committed. What it has done stays. A replay that was cancelled
cannot be continued.

It reads the keys database and outbox only; with --database, or WAYBILL_DATABASE,
no file is needed.`,
		Example: `  waybill actions cancel 0198c2f1-7d2e-7c55-9d6f-0f4d1f2a3b4c`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return wrongUsage(cmd, errors.New("give the id of an action"))
			}
			return noArguments(cmd, args[1:])
		},
		RunE: c.run,
	}
	c.add(cmd)
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
	case c.json:
		return printJSON(c.stdout, action)
	}
	fmt.Fprintf(c.stdout, "cancelled %s %s: %d done\n", action.Name, action.ID, action.Count)
	return nil
}
