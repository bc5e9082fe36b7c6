package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
)

func newTypes(p *command.Invocation) *cobra.Command {
	t := &types{looking: lookingFor(p)}
	cmd := &cobra.Command{
		Use:   "types",
		Short: "List the notification types and where they go",
		Long: `List the types in the last rows of the log and among parked deliveries, the types that
routes name, and, in a program of your own, the types that it registers. Each line shows
the versions that were found, the sinks with their conditions, or what happens if no
route matches. waybill config explain shows more about one type.

--all searches the whole log and all parked deliveries, which takes about a second for a
million rows. Use it to find out whether an old version, alias or type is still in use
before you remove it from a program. A program that registers types shows which versions
it cannot decode.

With --database alone, it shows types without their sinks. --offline reads only the
configuration, and needs no database.`,
		Example: `  waybill types
  waybill types --all --json`,
		Args: command.NoSuchCommand,
		RunE: t.run,
	}
	cmd.AddCommand(newTypesExport(p), newTypesCheck(p), newTypesPull(p), newAsyncAPI(p))
	t.Add(cmd)
	cmd.Flags().IntVar(&t.rows, "rows", 100_000, "how many of the last rows of the log, and of parked deliveries, to search")
	cmd.Flags().BoolVar(&t.all, "all", false, "search the whole log and all parked deliveries")
	cmd.Flags().BoolVar(&t.offline, "offline", false, "read only the configuration")
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
		return command.WrongUsage(cmd, fmt.Errorf("--rows is %d: use at least 1, or --all", t.rows))
	case t.all && t.offline:
		return command.WrongUsage(cmd, errors.New("--all searches the log and --offline does not read it: leave one out"))
	}
	lines, withRoutes, err := t.list(cmd)
	if err != nil {
		return err
	}
	if t.JSON {
		return command.PrintJSON(t.Stdout, lines)
	}
	printTypes(t.Stdout, lines, withRoutes, t.Options.Types != nil)
	return nil
}

// list lists the types, and reports whether there are routes.
func (t *types) list(cmd *cobra.Command) (lines []admin.Type, withRoutes bool, err error) {
	if t.offline {
		c, err := config.LoadDeliveries(t.Source(t.Flags), t.Options) // needs no database
		if err != nil {
			return nil, false, err
		}
		routes, err := c.Table()
		return admin.Types(nil, command.RoutingOf(c, routes), t.Options.Types), routes != nil, err
	}
	o, cleanup, err := t.open(cmd)
	if err != nil {
		return nil, false, err
	}
	defer cleanup()
	rows := t.rows
	if t.all {
		rows = 0
	}
	lines, err = o.listTypes(cmd.Context(), rows, t.Options.Types)
	return lines, o.routing.Routes != nil, err
}

// listTypes lists the types in the last rows of the log, with the sinks of other configurations.
func (o *operator) listTypes(ctx context.Context, rows int, registered *registry.Registry) ([]admin.Type, error) {
	counts, err := o.Types(ctx, rows)
	if err != nil {
		return nil, err
	}
	routing, err := o.Beside(ctx, o.routing)
	return admin.Types(counts, routing, registered), err
}

func printTypes(w io.Writer, lines []admin.Type, withRoutes, withRegistered bool) {
	columns := []any{"type", "versions", "rows", "parked", "last"}
	if withRoutes {
		columns = append(columns, "goes to")
	}
	if withRegistered {
		columns = append(columns, "in the program")
	}
	t := command.NewTable(w, columns...)
	for _, line := range lines {
		var versions []string
		for _, v := range line.Versions {
			versions = append(versions, fmt.Sprint(v.Version))
		}
		row := table.Row{line.Type, command.OrDash(strings.Join(versions, ", ")), line.Rows(), line.Parked(), command.TimeOrDash(line.OccurredOn)}
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

// goesTo names the sinks with their conditions, as in "events, partner when payload.total > 100".
func goesTo(t admin.Type) string {
	switch forwarder.Unrouted(t.Unrouted) {
	case forwarder.UnroutedPark:
		return "no route: parked as dead under " + store.SinkUnrouted
	case forwarder.UnroutedIgnore:
		return "no route: skipped"
	}
	var texts []string
	for _, s := range t.Sinks {
		text := s.Sink
		if when := s.When(); when != "" {
			text += " when " + when
		}
		if len(s.Routes) == 0 {
			text += " (by another configuration)"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}
