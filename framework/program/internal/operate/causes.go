package operate

import (
	"context"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

func newParkedCauses(p *command.Invocation) *cobra.Command {
	c := &parkedCauses{looking: lookingFor(p)}
	cmd := &cobra.Command{
		Use:   "causes",
		Short: "Group what failed by its cause",
		Long: `Group failed deliveries by cause: those of one sink and type whose last errors are the
same, except for ids, numbers, times, addresses and quoted texts, which are shown as ….
The flags select deliveries that match all of them; without --state those that are dead,
retrying or in a collection that failed. The first 5,000 are grouped.

Each cause has an id. --cause selects its deliveries in waybill parked list, requeue and
discard, as long as they are among the first 5,000 that match the other flags.`,
		Example: `  waybill parked causes --sink partner
  waybill parked requeue --cause 5d41402abc4b`,
		Args: command.NoArguments,
		RunE: c.run,
	}
	c.Add(cmd)
	c.filters.add(cmd, true)
	return cmd
}

type parkedCauses struct {
	looking
	filters filterFlags
}

func (c *parkedCauses) run(cmd *cobra.Command, _ []string) error {
	filter, err := c.filters.filter(cmd)
	if err != nil {
		return err
	}
	return c.inEach(cmd, func(o *operator) (command.Look, error) {
		causes, err := o.causes(cmd.Context(), filter)
		return command.Look{View: causes, Print: func(w io.Writer) { printCauses(w, causes) }}, err
	})
}

// causes is Causes, which fails for an unknown sink: a typing mistake must not look as if nothing had failed.
func (o *operator) causes(ctx context.Context, f admin.Filter) (admin.Causes, error) {
	causes, err := o.Causes(ctx, f)
	if err == nil && causes.Examined == 0 {
		_, err = o.Count(ctx, f)
	}
	return causes, err
}

func printCauses(w io.Writer, causes admin.Causes) {
	if len(causes.Causes) == 0 {
		terminal.Println(w, "nothing that matches has failed")
		return
	}
	list := command.NewTable(w, "count", "class", "error", "type", "sink", "oldest", "cause")
	for _, c := range causes.Causes {
		list.AppendRow(table.Row{fmt.Sprintf("%d ×", c.Count), command.OrDash(c.Class), command.FirstLine(c.Error, 100), c.Type, c.Sink, command.TimeText(c.Oldest), c.ID})
	}
	list.Render()
	if causes.More {
		terminal.Printf(w, "\nof the first %d that failed: narrow them with flags such as --sink\n", causes.Examined)
	}
}
