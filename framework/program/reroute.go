package program

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

func newReroute(p *invocation) *cobra.Command {
	r := &reroute{bulk: bulk{acting: acting{looking: looking{invocation: p}}}}
	cmd := &cobra.Command{
		Use:   "reroute",
		Short: "Take up what had no route, by routes that were added later",
		Long: `Deliver what had no route when it was read (parked under the sink _unrouted) and has one
now. It goes to the sinks of its routes, in the order of the log and of its keys, with
all the sinks' retries: late, and where later ones of its key went on in the meantime,
after them. What is scheduled keeps its time. Rows that still have no route stay.

Add the route and restart the forwarders first: a sink must have begun to forward. What
a sink of its routes has not read yet stays parked, and is reported: it comes from the
log by itself. Once the sink has read that far, reroute again, or discard what has
arrived.

It needs the configuration's routes. All given flags must match.
It shows how many there are and asks first; --yes answers for scripts. It moves no more
than was shown, in batches, and each is whole: an interruption leaves the rest as it was.`,
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
		return wrongUsage(cmd, errors.New("the configuration has no routes, which say what goes where: name its file with -c"))
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
	err = r.run(cmd, p, words{verb: "reroute", done: "rerouted", wayOn: again}, struct {
		Counts []admin.RerouteCount `json:"counts"`
	}{append([]admin.RerouteCount{}, p.Counts...)})
	if p.Left > 0 && !r.json {
		fmt.Fprintf(r.stdout, "%s left under %s: a sink of the routes has not read so far yet\n", countText(p.Left, "delivery", "deliveries"), store.SinkUnrouted)
	}
	return err
}
