package operate

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/program/internal/columns"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store"
)

func newStatus(p *command.Invocation) *cobra.Command {
	s := lookingFor(p)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the log, the cursors and what is parked",
		Long: `Show the end of the log, the cursors of each sink in each lane, how many deliveries are
parked, and the running forwarders. It changes nothing.

PENDING counts the rows of a sink's types that the sink has not settled yet. With more
than 10,000 in all lanes of the sink it is an estimate, such as ≈ 1,240,000. If no
forwarder has said yet what a sink takes, and no configuration has routes to it, it counts
rows of all types, and a line below says so.

KEEPS FROM shows which sinks have not settled the whole log, and therefore keep rows in
it that outbox.retention would delete. A sink that was removed from the configuration
keeps them forever: see waybill forget.

TROUBLE shows what is wrong with a sink: it is paused, a forwarder cannot reach it (breaker
open), it asked a forwarder to wait (throttled), no forwarder works on it, it is late, or
deliveries are dead or overdue, or a hook fails; or with the log (-): a transaction that
has written to it stays open. For a sink with many destinations, such
as the hosts of customers, it names up to ten of the destinations that are held up.

FORWARDER shows what each running forwarder has done since it started, its deliveries
per second in the last minute, and how many it has in flight and in memory, summed over
its sinks; --json shows each sink. The figures are from its last heartbeat, at most a
third of a lease ago.

If there are several databases, it shows each, or those that --in names.
With --database or WAYBILL_DATABASE it needs no configuration file. It never needs the
secrets of the sinks.`,
		Example: `  waybill status
  waybill status --json --database postgres://app@localhost/app`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.inEach(cmd, func(o *operator) (command.Look, error) {
				found, err := o.Status(cmd.Context(), o.routing.Routes)
				return command.Look{View: found, Print: func(w io.Writer) {
					printStatus(w, found.Status, found.Troubles, time.Now())
					printForwarders(w, found.Forwarders)
				}}, err
			})
		},
	}
	s.Add(cmd)
	return cmd
}

// printForwarders prints a line for each forwarder, with sums over its sinks.
func printForwarders(w io.Writer, forwarders []admin.ForwarderStatus) {
	if len(forwarders) == 0 {
		return
	}
	terminal.Println(w)
	lines := columns.New(w, 1, "forwarder", "delivered", "failed", "dead", "per second", "in flight", "pending", "breakers open")
	for _, f := range forwarders {
		var sum store.SinkRunning
		open := 0
		for _, s := range f.Running {
			sum = sum.Plus(s)
			if s.BreakerOpen {
				open++
			}
		}
		lines.AppendRow(table.Row{f.Forwarder, sum.Delivered, sum.Failed, sum.Dead, strconv.FormatFloat(sum.PerSecond, 'f', 1, 64), sum.InFlight, sum.Pending, open})
	}
	lines.Render()
}

// printLog prints where the log begins and ends.
func printLog(w io.Writer, state *store.Status) {
	if state.Source == "" {
		terminal.Printf(w, "last offset: %d\n", state.LastOffset)
		if state.Oldest != nil {
			terminal.Printf(w, "oldest row:  %d, of %s\n", state.Oldest.Offset, command.TimeText(state.Oldest.OccurredOn))
		}
	} else {
		terminal.Printf(w, "log:           %s\n", state.Source)
		if state.Oldest != nil {
			terminal.Printf(w, "oldest record: of %s\n", command.TimeText(state.Oldest.OccurredOn))
		}
	}
	terminal.Println(w)
}

func printStatus(w io.Writer, state store.Status, troubles []admin.Trouble, now time.Time) {
	printLog(w, &state)

	cursors := command.NewTable(w, "sink", "lane", "pending", "owner", "lease left")
	for _, c := range state.Cursors {
		cursors.AppendRow(table.Row{c.Sink, c.Lane, admin.CountText(int64(c.Pending), c.Estimated), command.OrDash(c.Owner), leaseText(c, now)})
	}
	if len(state.Cursors) == 0 {
		terminal.Println(w, "no cursors: no forwarder has run yet")
	} else {
		cursors.Render()
	}
	if sinks := countedWhole(state.Cursors); len(sinks) > 0 && state.Source != "" {
		terminal.Println(w, "PENDING counts records of all types")
	} else if len(sinks) > 0 {
		terminal.Printf(w, "PENDING of %s counts rows of all types: no forwarder has said yet what they take\n", strings.Join(sinks, ", "))
	}
	terminal.Println(w)

	parked := command.NewTable(w, "sink", "parked", "count")
	for _, c := range state.Parked {
		count := any(c.Count)
		if c.Count >= store.ParkedLimit {
			count = strconv.Itoa(store.ParkedLimit) + "+"
		}
		if c.Collections > 0 {
			count = fmt.Sprintf("%v in %s", count, command.CountText(c.Collections, "group", "groups"))
		}
		parked.AppendRow(table.Row{c.Sink, c.State, count})
	}
	if len(state.Parked) == 0 {
		terminal.Println(w, "nothing is parked")
	} else {
		parked.Render()
	}

	if len(state.Holders) > 0 {
		terminal.Println(w)
		holders := command.NewTable(w, "sink", "keeps from", "of", "why")
		for _, h := range state.Holders {
			holders.AppendRow(table.Row{h.Sink, h.Offset, command.TimeText(h.OccurredOn), cmp.Or(h.Reason, "not settled")})
		}
		holders.Render()
	}
	if len(troubles) > 0 {
		terminal.Println(w)
		wrong := command.NewTable(w, "sink", "trouble")
		for _, t := range troubles {
			sink := command.OrDash(t.Sink)
			if t.Destination != "" {
				sink += " to " + t.Destination
			}
			wrong.AppendRow(table.Row{sink, command.FirstLine(t.Text, 200)})
		}
		wrong.Render()
	}
}

// countedWhole names the sinks whose pending rows are counted for all types.
func countedWhole(cursors []store.CursorStatus) (sinks []string) {
	for _, c := range cursors {
		if c.AllTypes && !slices.Contains(sinks, c.Sink) {
			sinks = append(sinks, c.Sink)
		}
	}
	return sinks
}

// leaseText returns how long a lease lasts by this machine's clock. The lease itself follows
// the database's clock.
func leaseText(c store.CursorStatus, now time.Time) string {
	left := c.LeaseUntil.Sub(now)
	switch {
	case c.Owner == "":
		return "-"
	case left <= 0:
		return "expired"
	}
	return left.Round(100 * time.Millisecond).String()
}
