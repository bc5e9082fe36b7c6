package program

import (
	"context"
	"errors"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

func newRequeue(p *invocation) *cobra.Command {
	return newParkedAction(p, parkedAction{
		words: words{verb: "requeue", done: "requeued", next: again},
		short: "Retry dead deliveries",
		long: `Make dead deliveries due now, with all their attempts again. --state retrying selects
deliveries that wait for their next attempt. Several deliveries of a key go in order.
Forwarders that listen for NOTIFY react at once, others within a twentieth of their
lease.`,
		example: `  waybill parked requeue --sink partner --error timeout
  waybill parked requeue --all --yes`,
		states: true,
		plan: func(o *operator, ctx context.Context, f admin.Filter) (*admin.Plan, error) {
			return o.Requeue(ctx, f)
		},
	})
}

func newDiscard(p *invocation) *cobra.Command {
	return newParkedAction(p, parkedAction{
		words: words{verb: "discard", done: "discarded", next: again},
		short: "Delete dead deliveries",
		long: `Delete dead deliveries, or those in the states of --state. They are never made. If
retention has deleted their rows from the log, nothing is left of them.`,
		example: `  waybill parked discard --sink partner --older-than 30d
  waybill parked discard --id 0198c2f1-… --sink partner`,
		states: true,
		plan: func(o *operator, ctx context.Context, f admin.Filter) (*admin.Plan, error) {
			return o.Discard(ctx, f)
		},
	})
}

func newSkip(p *invocation) *cobra.Command {
	return newParkedAction(p, parkedAction{
		words: words{verb: "skip", done: "skipped", next: again},
		short: "Delete dead deliveries that block their keys",
		long: `Delete the dead deliveries that block later ones of their keys (on_dead: halt). The
later ones are then delivered in order.`,
		example: `  waybill parked skip --sink ledger --key account-17`,
		plan: func(o *operator, ctx context.Context, f admin.Filter) (*admin.Plan, error) {
			return o.Skip(ctx, f)
		},
	})
}

// parkedAction is a command that acts on parked deliveries.
type parkedAction struct {
	bulk
	words                words
	short, long, example string
	states               bool // whether the command has --state
	plan                 func(o *operator, ctx context.Context, f admin.Filter) (*admin.Plan, error)

	filters filterFlags
	all     bool
}

func newParkedAction(p *invocation, a parkedAction) *cobra.Command {
	a.invocation = p
	cmd := &cobra.Command{
		Use:   a.words.verb,
		Short: a.short,
		Long: a.long + `

The flags select deliveries that match all of them; use --all to select every one. The
command shows how many there are and asks first; scripts use --yes. It works in batches,
each in a transaction: an interruption leaves the rest unchanged. waybill actions shows
who has done what.

` + needsDatabaseOnly,
		Example: a.example,
		Args:    noArguments,
		RunE:    a.act,
	}
	a.add(cmd)
	a.filters.add(cmd, a.states)
	cmd.Flags().BoolVar(&a.all, "all", false, "select all, instead of the other flags")
	return cmd
}

func (a *parkedAction) act(cmd *cobra.Command, _ []string) error {
	filter, err := a.filters.filter(cmd)
	switch {
	case err != nil:
		return err
	case a.filters.isEmpty() && !a.all:
		return wrongUsage(cmd, errors.New("select deliveries, such as with --sink partner, or use --all"))
	case !a.filters.isEmpty() && a.all:
		return wrongUsage(cmd, errors.New("--all contradicts the other flags that select deliveries: leave one of them out"))
	}
	if err := a.check(cmd); err != nil {
		return err
	}
	o, cleanup, err := a.open(cmd)
	if err != nil {
		return err
	}
	defer cleanup()
	p, err := a.plan(o, cmd.Context(), filter)
	if errors.Is(err, admin.ErrFilter) {
		return wrongUsage(cmd, err)
	}
	if err != nil {
		return err
	}
	if !a.json && len(p.Counts) > 0 {
		counts := newTable(a.stdout, "sink", "parked", "count")
		for _, c := range p.Counts {
			counts.AppendRow(table.Row{c.Sink, c.State, c.Count})
		}
		counts.Render()
	}
	return a.run(cmd, p, a.words, struct {
		Counts []store.ParkedCount `json:"counts"`
	}{append([]store.ParkedCount{}, p.Counts...)})
}
