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
		words: words{verb: "requeue", done: "requeued", wayOn: again},
		short: "Try dead deliveries again",
		long: `Make dead deliveries due at once, by the database's clock, with no attempt spent;
with --state retrying also those that wait for their next attempt. Several dead ones
of a key go in their order. Forwarders notice it within a twentieth of their lease,
and those that listen at once.`,
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
		words: words{verb: "discard", done: "discarded", wayOn: again},
		short: "Delete dead deliveries",
		long: `Delete dead deliveries, or those in the states that --state names. They will
never be made, and if retention has removed their rows from the log, nothing is left
of them.`,
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
		words: words{verb: "skip", done: "skipped", wayOn: again},
		short: "Delete the dead heads of halted keys",
		long: `Delete the dead deliveries that hold back what waits behind them (on_dead: halt),
so that their keys go on. What waits is then delivered in its order.`,
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
	states               bool // it takes --state
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

All given flags must match; without any, --all is needed. It shows how many there are and asks first; --yes answers for scripts. It
works in batches, and each is whole: an interruption leaves the rest as it was.
waybill actions lists who has done what.`,
		Example: a.example,
		Args:    noArguments,
		RunE:    a.act,
	}
	a.add(cmd)
	a.filters.add(cmd, a.states)
	cmd.Flags().BoolVar(&a.all, "all", false, "all of them, where no other flag selects some")
	return cmd
}

func (a *parkedAction) act(cmd *cobra.Command, _ []string) error {
	filter, err := a.filters.filter(cmd)
	switch {
	case err != nil:
		return err
	case a.filters.isEmpty() && !a.all:
		return wrongUsage(cmd, errors.New("say which ones, such as --sink partner, or --all"))
	case !a.filters.isEmpty() && a.all:
		return wrongUsage(cmd, errors.New("--all is for when nothing else selects some: leave one of them out"))
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
