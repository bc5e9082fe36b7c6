package operate

import (
	"errors"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store"
)

// parkedAction is a command that acts on parked deliveries. Its name is an operation.
type parkedAction struct {
	bulk
	operation admin.Operation
	filters   filterFlags
	all       bool
}

// selection ends the help of commands that act on what flags select.
const selection = `

The flags select deliveries that match all of them; use --all to select every one. The
command shows how many there are and asks first; scripts use --yes. It works in batches,
each in a transaction: an interruption leaves the rest unchanged. waybill actions shows
who has done what.

` + command.NeedsDatabaseOnly

// newParkedActions makes the commands of the operations on parked deliveries.
func newParkedActions(p *command.Invocation) []*cobra.Command {
	commands := []*cobra.Command{
		{
			Use:   "requeue",
			Short: "Retry dead deliveries",
			Long: `Make dead deliveries due now, with all their attempts again. --state retrying selects
deliveries that wait for their next attempt, and --state collecting collections that do.
Dead members of a collection come back in it. Several deliveries of a key go in order.
Forwarders that listen for NOTIFY react at once, others within a twentieth of their
lease.` + selection,
			Example: `  waybill parked requeue --sink partner --error timeout
  waybill parked requeue --all --yes`,
		},
		{
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
		},
		{
			Use:   "discard",
			Short: "Delete dead deliveries",
			Long: `Delete dead deliveries, or those in the states of --state. They are never made. If
retention has deleted their rows from the log, nothing is left of them. Deliveries that
wait behind them continue. It deletes all that match; skip only the first of each key.` + selection,
			Example: `  waybill parked discard --sink partner --older-than 30d
  waybill parked discard --id 0198c2f1-… --sink partner`,
		},
		{
			Use:   "skip",
			Short: "Delete dead deliveries that block their keys",
			Long: `Delete the dead deliveries that block later ones of their keys (on_dead: halt). The
later ones are then delivered in order. It deletes of each key only the first delivery,
and only if that is dead; discard deletes all dead ones that match.` + selection,
			Example: `  waybill parked skip --sink ledger --key account-17
  waybill parked skip --sink ledger --id 0198c2f1-… --dry-run`,
		},
	}
	for _, cmd := range commands {
		a := &parkedAction{}
		a.Invocation = p
		a.operation, _ = admin.Named(admin.OnDeliveries, cmd.Use)
		a.Add(cmd)
		cmd.Args, cmd.RunE = command.NoArguments, a.act
	}
	return commands
}

func (a *parkedAction) Add(cmd *cobra.Command) {
	a.bulk.Add(cmd)
	if a.reroutes() {
		a.filters.addCommon(cmd)
		return
	}
	a.filters.add(cmd, a.operation.Name != "skip")
	cmd.Flags().BoolVar(&a.all, "all", false, "select all, instead of the other flags")
}

// reroutes reports whether the operation is reroute, which is about no sink and selects all without flags.
func (a *parkedAction) reroutes() bool { return a.operation.Name == "reroute" }

func (a *parkedAction) act(cmd *cobra.Command, _ []string) error {
	filter, err := a.filters.filter(cmd)
	switch {
	case err != nil:
		return err
	case isEmpty(filter) && !a.all && !a.reroutes():
		return command.WrongUsage(cmd, errors.New("select deliveries, such as with --sink partner, or use --all"))
	case !isEmpty(filter) && a.all:
		return command.WrongUsage(cmd, errors.New("--all contradicts the other flags that select deliveries: leave one of them out"))
	}
	if err := a.check(cmd); err != nil {
		return err
	}
	o, cleanup, err := a.open(cmd)
	if err != nil {
		return err
	}
	defer cleanup()
	if a.reroutes() && o.routing.Routes == nil {
		return command.WrongUsage(cmd, errors.New("rerouting needs the configuration's routes: name the configuration file with -c"))
	}
	p, err := o.Plan(cmd.Context(), admin.Task{Operation: a.operation.Name, Filter: filter, Routes: o.routing.Routes})
	if errors.Is(err, admin.ErrFilter) {
		return command.WrongUsage(cmd, err)
	}
	if err != nil {
		return err
	}
	err = a.run(cmd, p, words{Operation: a.operation, next: again}, a.show(p))
	r, is := p.(*admin.Plan)
	if is && r.More && !a.JSON {
		terminal.Printf(a.Stdout, "of the first %d that failed: there may be more of the cause, for which the same command is repeated\n", admin.CauseRows)
	}
	if is && r.Left > 0 && !a.JSON {
		terminal.Printf(a.Stdout, "%s left under %s: a sink of the routes has not read that far yet\n", command.CountText(r.Left, "delivery", "deliveries"), store.SinkUnrouted)
	}
	return err
}

// show prints what a plan covers, and returns it for --json.
func (a *parkedAction) show(p admin.Planned) any {
	plan, _ := p.(*admin.Plan)
	var view any
	counts := command.NewTable(a.Stdout, "sink", "parked", "count")
	if plan.Types != nil {
		counts = command.NewTable(a.Stdout, "type", "parked", "count", "goes to")
		for _, c := range plan.Types {
			counts.AppendRow(table.Row{c.Type, c.State, c.Count, strings.Join(c.Sinks, ", ")})
		}
		view = plan.Types
	} else {
		for _, c := range plan.Counts {
			counts.AppendRow(table.Row{c.Sink, c.State, c.Count})
		}
		view = append([]store.ParkedCount{}, plan.Counts...)
	}
	if !a.JSON && counts.Length() > 0 {
		counts.Render()
	}
	return map[string]any{"counts": view}
}
