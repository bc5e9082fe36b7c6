package program

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
)

func newTypes(p *invocation) *cobra.Command {
	t := &types{looking: looking{invocation: p}}
	cmd := &cobra.Command{
		Use:   "types",
		Short: "List the types of notifications, and where they go",
		Long: `List the types that there are in the last rows of the log and among parked deliveries,
those that routes name, and those that the program knows, if it is one with types of its
own: with the versions that there are, the sinks to which each goes, under which conditions,
or what becomes of it where no route matches. waybill config explain shows more about one type.

Before an upcaster, an alias or a type is removed from a program, --all shows whether
something of it is left: it looks through the whole log and all that is parked, which takes
about a second for a million rows. A program with types of its own shows which of the
versions it cannot decode.

Without a configuration, with --database only, it shows what there is, and not where it
goes. With --offline it looks at the configuration only, and needs no database.`,
		Args: noArguments,
		RunE: t.run,
	}
	t.add(cmd)
	cmd.Flags().IntVar(&t.rows, "rows", 100_000, "how many of the last rows of the log, and of parked deliveries, to look at")
	cmd.Flags().BoolVar(&t.all, "all", false, "look at the whole log, and at all that is parked")
	cmd.Flags().BoolVar(&t.offline, "offline", false, "look at the configuration only")
	return cmd
}

type types struct {
	looking
	rows    int
	all     bool
	offline bool
}

func (t *types) run(cmd *cobra.Command, _ []string) error {
	switch {
	case t.rows < 1:
		return wrongUsage(cmd, fmt.Errorf("--rows is %d: use at least 1, or --all", t.rows))
	case t.all && t.offline:
		return wrongUsage(cmd, errors.New("--all looks at the log and --offline does not: leave one out"))
	}
	load, source := config.LoadDeliveries, t.source(t.flags) // which needs no database
	if !t.offline {
		var err error
		if source, err = t.one(cmd, t.flags); err != nil {
			return err
		}
		load = config.LoadRoutes
	}
	c, err := load(source, t.options)
	if err != nil {
		return err
	}
	routes, err := c.Table()
	if err != nil {
		return err
	}
	var counts []store.TypeCount
	if !t.offline {
		if counts, err = t.count(cmd); err != nil {
			return err
		}
	}
	lines := admin.Types(counts, routingOf(c, routes), t.options.Types)
	if t.json {
		return printJSON(t.stdout, lines)
	}
	printTypes(t.stdout, lines, routes != nil, t.options.Types != nil)
	return nil
}

// count counts what the log has.
func (t *types) count(cmd *cobra.Command) ([]store.TypeCount, error) {
	o, cleanup, err := t.open(cmd)
	if err != nil {
		return nil, err
	}
	defer cleanup()
	limit := t.rows
	if t.all {
		limit = 0
	}
	return o.Types(cmd.Context(), limit)
}

func printTypes(w io.Writer, lines []admin.Type, withRoutes, withRegistered bool) {
	columns := []any{"type", "versions", "rows", "parked", "last"}
	if withRoutes {
		columns = append(columns, "goes to")
	}
	if withRegistered {
		columns = append(columns, "in the program")
	}
	t := newTable(w, columns...)
	for _, line := range lines {
		var versions []string
		for _, v := range line.Versions {
			versions = append(versions, fmt.Sprint(v.Version))
		}
		row := table.Row{line.Type, orDash(strings.Join(versions, ", ")), line.Rows(), line.Parked(), timeOrDash(line.OccurredOn)}
		if withRoutes {
			row = append(row, goesTo(line))
		}
		if withRegistered {
			row = append(row, line.InProgram())
		}
		t.AppendRow(row)
	}
	t.Render()
}

// goesTo names the sinks with their conditions: events, partner when payload.total > 100.
func goesTo(t admin.Type) string {
	switch forwarder.Unrouted(t.Unrouted) {
	case forwarder.UnroutedPark:
		return "no route: parked as dead under " + store.SinkUnrouted
	case forwarder.UnroutedIgnore:
		return "no route: passed over"
	}
	var texts []string
	for _, s := range t.Sinks {
		text := s.Sink
		if when := s.When(); when != "" {
			text += " when " + when
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}
