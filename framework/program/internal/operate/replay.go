package operate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store"
)

func newReplay(p *command.Invocation) *cobra.Command {
	r := &replay{bulk: bulk{acting: acting{lookingFor(p)}}}
	cmd := &cobra.Command{
		Use:   "replay --sink SINK",
		Short: "Deliver rows of the log to a sink again",
		Long: `Deliver rows of the log to a sink again: those that are routed to it, that it has
settled, and that the flags select. They become parked deliveries that are due, and are
delivered in the order of their keys with the sink's retries. The receiver gets ids that
it has seen before; a receiver that deduplicates by id ignores them.

Deliveries that are parked for the sink are not touched: see waybill parked requeue. Rows
that the sink has not settled yet are delivered anyway. Rows that outbox.retention has
deleted cannot be replayed.

The command needs the configuration's routes. It counts and asks first; scripts use
--yes. After an interruption, --continue resumes where the replay stopped.

If the log is a Kafka topic, the sink's cursors go back to --since or --from, and all
records from there on, of all types, are delivered again at once. --type and --until are
refused, and --rate has no effect.`,
		Example: `  waybill replay --sink search --since 2026-03-01 --until 2026-03-02 --dry-run
  waybill replay --sink search --type 'order.*' --since 6h --rate 100
  waybill replay --continue 0198c2f1-7d2e-7c55-9d6f-0f4d1f2a3b4c`,
		Args: command.NoArguments,
		RunE: r.act,
	}
	r.Add(cmd)
	cmd.Flags().StringVar(&r.request.Sink, "sink", "", "sink to deliver to")
	cmd.Flags().StringVar(&r.request.Type, "type", "", "replay rows of this type, or of all types with a prefix (order.*) (default: all types that go to the sink, but for those that begin with _)")
	cmd.Flags().Var(&r.since, "since", "replay rows that occurred at this time or later: a time, or an age such as 6h or 7d")
	cmd.Flags().StringVar(&r.request.From, "from", "", "replay a Kafka partition from this record on, such as orders/3@1042; only if the log is a Kafka topic")
	cmd.Flags().Var(&r.until, "until", "replay rows that occurred before this time")
	cmd.Flags().IntVar(&r.request.Rate, "rate", 1000, "how many deliveries become due per second at most; 0 sets no limit")
	cmd.Flags().StringVar(&r.going, "continue", "", "resume the interrupted replay with this action id")
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
		return command.WrongUsage(cmd, errors.New("name the sink to deliver to: --sink"))
	case r.going != "" && slices.ContainsFunc([]string{"sink", "type", "since", "from", "until", "rate"}, cmd.Flags().Changed):
		return command.WrongUsage(cmd, errors.New("--continue keeps the selection of the interrupted replay: leave the other flags out"))
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
		return command.WrongUsage(cmd, err)
	}
	if err != nil {
		return err
	}
	if !r.JSON {
		r.show(p)
	}
	operation, _ := admin.Named(admin.OnDeliveries, "replay")
	return r.run(cmd, p, words{Operation: operation, before: p.Done, next: func(a store.Action) string {
		return "continue with waybill replay --continue " + a.ID
	}}, p.View())
}

func (r *replay) plan(cmd *cobra.Command, o *operator) (*admin.ReplayPlan, error) {
	if r.going != "" {
		return o.ContinueReplay(cmd.Context(), r.going)
	}
	if o.routing.Routes == nil {
		return nil, command.WrongUsage(cmd, errors.New("a replay needs the configuration's routes: name the configuration file with -c"))
	}
	r.request.Since, r.request.Until = r.since.Time, r.until.Time
	r.request.Routed = o.routing.Routes.Filter(r.request.Sink)
	if r.request.Routed.None() && !strings.HasPrefix(r.request.Sink, "_") {
		return nil, command.WrongUsage(cmd, fmt.Errorf("no route of the configuration leads to sink %q", r.request.Sink))
	}
	return o.Replay(cmd.Context(), r.request)
}

// show prints what the replay leaves out.
func (r *replay) show(p *admin.ReplayPlan) {
	c := p.Count
	switch {
	case p.Gone() && c.Oldest == nil:
		terminal.Println(r.Stdout, "the log is empty: nothing was published yet, or retention has removed all rows")
	case p.Gone() && c.Oldest.Offset == 0:
		terminal.Printf(r.Stdout, "retention has deleted what was written before %s\n", command.TimeText(c.Oldest.OccurredOn))
	case p.Gone():
		terminal.Printf(r.Stdout, "retention has deleted the rows before offset %d, of %s\n", c.Oldest.Offset, command.TimeText(c.Oldest.OccurredOn))
	}
	if c.Parked > 0 {
		terminal.Printf(r.Stdout, "%s parked for %s and not touched\n", isAre(c.Parked), p.Sink)
	}
	if c.Unsettled > 0 {
		terminal.Printf(r.Stdout, "%s not settled by %s yet and will be delivered anyway\n", isAre(c.Unsettled), p.Sink)
	}
}

func isAre(n int64) string {
	if n == 1 {
		return "1 is"
	}
	return fmt.Sprintf("%d are", n)
}
