package program

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

func newReplay(p *invocation) *cobra.Command {
	r := &replay{bulk: bulk{acting: acting{looking: looking{invocation: p}}}}
	cmd := &cobra.Command{
		Use:   "replay --sink SINK",
		Short: "Deliver what is in the log to one sink again",
		Long: `Deliver rows of the log to one sink once more: those that its routes ask for, that
it has settled, and that the flags select. They go in the order of the log and of
their keys, as parked deliveries that are due, with the sink's retries. The receiver sees ids
that it has seen before; one that deduplicates by them ignores them.

What is parked for the sink stays as it is: see waybill parked requeue. What it has not
settled yet comes by itself. What outbox.retention has removed cannot be replayed.

It needs the configuration's routes. It counts and asks first; --yes answers for
scripts. An interruption loses nothing: --continue goes on from where it stopped.

Where the log is a source, the sink's cursors go back to --since, and all behind it comes again at once, of
all types: --type and --until are refused, and --rate is of no effect.`,
		Example: `  waybill replay --sink search --since 2026-03-01 --until 2026-03-02 --dry-run
  waybill replay --sink search --type 'order.*' --since 6h --rate 100
  waybill replay --continue 0198c2f1-7d2e-7c55-9d6f-0f4d1f2a3b4c`,
		Args: noArguments,
		RunE: r.act,
	}
	r.add(cmd)
	cmd.Flags().StringVar(&r.request.Sink, "sink", "", "the sink to deliver to")
	cmd.Flags().StringVar(&r.request.Type, "type", "", "of this type, or of types with a beginning (order.*) (default: all that go to the sink)")
	cmd.Flags().Var(&r.since, "since", "that occurred then or later: a time, or how long ago it is, such as 6h or 7d")
	cmd.Flags().StringVar(&r.request.From, "from", "", "of a source: this record and what is behind it in its partition, such as orders/3@1042")
	cmd.Flags().Var(&r.until, "until", "that occurred before then")
	cmd.Flags().IntVar(&r.request.Rate, "rate", 1000, "deliveries that become due per second at most; 0 sets no limit")
	cmd.Flags().StringVar(&r.going, "continue", "", "go on with the interrupted replay of this action's id")
	return cmd
}

type replay struct {
	bulk
	request      admin.ReplayRequest
	since, until momentFlag
	going        string // id of the action to continue
}

func (r *replay) act(cmd *cobra.Command, _ []string) error {
	switch {
	case r.going == "" && r.request.Sink == "":
		return wrongUsage(cmd, errors.New("name the sink to deliver to: --sink"))
	case r.going != "" && anyChanged(cmd, "sink", "type", "since", "from", "until", "rate"):
		return wrongUsage(cmd, errors.New("--continue goes on with what was asked for: leave the other flags out"))
	}
	if err := r.check(cmd); err != nil {
		return err
	}
	o, cleanup, err := r.open(cmd)
	if err != nil {
		return err
	}
	defer cleanup()
	p, err := r.plan(cmd, o)
	if errors.Is(err, admin.ErrFilter) {
		return wrongUsage(cmd, err)
	}
	if err != nil {
		return err
	}
	if !r.json {
		r.show(p)
	}
	return r.run(cmd, p, words{verb: "replay", done: "replayed", before: p.Done, wayOn: func(a store.Action) string {
		return "go on with waybill replay --continue " + a.ID
	}}, p.View())
}

func anyChanged(cmd *cobra.Command, flags ...string) bool {
	for _, name := range flags {
		if cmd.Flags().Changed(name) {
			return true
		}
	}
	return false
}

func (r *replay) plan(cmd *cobra.Command, o *operator) (*admin.ReplayPlan, error) {
	if r.going != "" {
		return o.ContinueReplay(cmd.Context(), r.going)
	}
	if o.routing.Routes == nil {
		return nil, wrongUsage(cmd, errors.New("the configuration has no routes, which say what goes to the sink: name its file with -c"))
	}
	r.request.Since, r.request.Until = r.since.Time, r.until.Time
	r.request.Routed = o.routing.Routes.Filter(r.request.Sink)
	if r.request.Routed.None() && !strings.HasPrefix(r.request.Sink, "_") {
		return nil, wrongUsage(cmd, fmt.Errorf("no route of the configuration leads to sink %q", r.request.Sink))
	}
	return o.Replay(cmd.Context(), r.request)
}

// show says what there is beside what will be replayed.
func (r *replay) show(p *admin.ReplayPlan) {
	c := p.Count
	switch {
	case p.Gone() && c.Oldest == nil:
		fmt.Fprintln(r.stdout, "the log is empty: retention has removed all that was in it")
	case p.Gone() && c.Oldest.Offset == 0:
		fmt.Fprintf(r.stdout, "retention has removed what was written before %s\n", timeText(c.Oldest.OccurredOn))
	case p.Gone():
		fmt.Fprintf(r.stdout, "retention has removed what stood before offset %d, of %s\n", c.Oldest.Offset, timeText(c.Oldest.OccurredOn))
	}
	if c.Parked > 0 {
		fmt.Fprintf(r.stdout, "%s parked for %s and left as they are\n", isAre(c.Parked), p.Sink)
	}
	if c.Unsettled > 0 {
		fmt.Fprintf(r.stdout, "%s not settled by %s yet and will come anyway\n", isAre(c.Unsettled), p.Sink)
	}
}

func isAre(n int64) string {
	if n == 1 {
		return "1 is"
	}
	return fmt.Sprintf("%d are", n)
}
