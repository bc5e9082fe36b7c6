package program

import (
	"errors"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store"
)

func newReroute(p *invocation) *cobra.Command {
	r := &reroute{bulk: bulk{acting: acting{looking: looking{invocation: p}}}}
	cmd := &cobra.Command{
		Use:   "reroute",
		Short: "Deliver what had no route when it was read",
		Long: `Deliver notifications that had no route when they were read, and have one now. They are
parked under the sink _unrouted. They go to the sinks of their routes in the order of
the log and of their keys, with the sinks' retries. They are late: later notifications
of a key may have been delivered before. A scheduled notification keeps its time.
Notifications that still have no route stay parked.

Before you run it, add the route and let the forwarders apply it, so that the sinks have
started. A notification that a sink of its routes has not read yet stays parked and is
reported, because the sink will read it from the log. Once the sink has read that far,
run the command again, or discard what was delivered.

The command needs the configuration's routes. The flags select notifications that match
all of them. It shows how many there are and asks first; scripts use --yes. It works in
batches, each in a transaction, and moves no more than it has shown: an interruption
leaves the rest unchanged.`,
		Example: `  waybill parked reroute --dry-run
  waybill parked reroute --type 'parcel.*' --yes`,
		Args: noArguments,
		RunE: r.act,
	}
	r.add(cmd)
	r.filters.addCommon(cmd)
	return cmd
}

type reroute struct {
	bulk
	filters filterFlags
}

func (r *reroute) act(cmd *cobra.Command, _ []string) error {
	filter, err := r.filters.filter(cmd)
	if err != nil {
		return err
	}
	if err := r.check(cmd); err != nil {
		return err
	}
	o, cleanup, err := r.open(cmd)
	if err != nil {
		return err
	}
	defer cleanup()
	if o.routing.Routes == nil {
		return wrongUsage(cmd, errors.New("rerouting needs the configuration's routes: name the configuration file with -c"))
	}
	p, err := o.Reroute(cmd.Context(), filter, o.routing.Routes)
	if err != nil {
		return err
	}
	if !r.json && len(p.Counts) > 0 {
		counts := newTable(r.stdout, "type", "parked", "count", "goes to")
		for _, c := range p.Counts {
			counts.AppendRow(table.Row{c.Type, c.State, c.Count, strings.Join(c.Sinks, ", ")})
		}
		counts.Render()
	}
	err = r.run(cmd, p, words{verb: "reroute", done: "rerouted", next: again}, struct {
		Counts []admin.RerouteCount `json:"counts"`
	}{append([]admin.RerouteCount{}, p.Counts...)})
	if p.Left > 0 && !r.json {
		terminal.Printf(r.stdout, "%s left under %s: a sink of the routes has not read that far yet\n", countText(p.Left, "delivery", "deliveries"), store.SinkUnrouted)
	}
	return err
}
