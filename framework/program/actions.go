package program

import (
	"fmt"
	"time"

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
first: who has done them, to what, and to how many. One without an end is under way or
was interrupted; a replay can be continued by its id.`,
		Args: noArguments,
		RunE: a.run,
	}
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
	t := newTable(a.stdout, "at", "who", "action", "count", "ended", "filter", "id")
	for _, action := range list {
		t.AppendRow(table.Row{timeText(action.At), action.Who, action.Name, action.Count, endText(action.EndedAt), string(action.Filter), action.ID})
	}
	t.Render()
	return nil
}

func endText(t time.Time) string {
	if t.IsZero() {
		return "no"
	}
	return timeText(t)
}
