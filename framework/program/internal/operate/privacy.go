package operate

import (
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store"
)

func newPrivacy(p *command.Invocation) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "privacy",
		Short: "Remove what the outbox keeps about one person",
		Long: `Erase the private values of one person, or delete the person's notifications, for those who
ask to be forgotten; and manage the keys of private values.

` + command.NeedsDatabaseOnly,
		Args: command.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(command.WrongFlag)
	cmd.AddCommand(newFind(p), newErase(p), newErased(p), newRotate(p), newPurge(p))
	return cmd
}

// purge is a command that deletes the notifications of one person.
type purge struct {
	bulk
	request admin.PurgeRequest
}

func newPurge(p *command.Invocation) *cobra.Command {
	c := &purge{bulk: bulk{acting: acting{lookingFor(p)}}}
	cmd := &cobra.Command{
		Use:   "purge {--key KEY | --id ID}...",
		Short: "Delete the notifications of one person",
		Long: `Delete all that the outbox has of the notifications with some ordering keys or ids: their
rows of the log, their parked deliveries in any state, receipts, ids in inboxes,
cancellations and attempts at customers' endpoints, and uniqueness keys that are equal to
one of the keys. What is not delivered yet is never delivered. Earlier actions that name
one of the keys or ids keep who did what and when, and lose their filter and reason.

Receipts, attempts and inboxes have no keys. What retention has left of notifications
whose rows are gone is found only with --id. Records of a Kafka topic stay.

Forwarders can go on. What one has in hand may still reach its sink, and leaves a receipt,
or is parked if that fails. Run the command again once waybill status shows that nothing
is pending, with the ids for these receipts; waybill log --key shows them before the
first run. The action is recorded with the number of keys and ids, but without them.

The command shows what it would delete and asks first; scripts use --yes. It works in
batches, each in a transaction, and reads the whole log.

` + command.NeedsDatabaseOnly,
		Example: `  waybill privacy purge --key customer-42 --dry-run
  waybill privacy purge --key customer-42 --key cart-17 --id 0198c2f1-… --yes`,
		Args: command.NoArguments,
		RunE: c.act,
	}
	c.Add(cmd)
	cmd.Flags().StringArrayVar(&c.request.Keys, "key", nil, "delete the notifications with this ordering key; can be repeated")
	cmd.Flags().StringArrayVar(&c.request.IDs, "id", nil, "delete the notification with this id; can be repeated")
	return cmd
}

func (c *purge) act(cmd *cobra.Command, _ []string) error {
	if err := c.request.Validate(); err != nil {
		return command.WrongUsage(cmd, err)
	}
	if err := c.check(cmd); err != nil {
		return err
	}
	o, cleanup, err := c.open(cmd)
	if err != nil {
		return err
	}
	defer cleanup()
	p, err := o.Purge(cmd.Context(), c.request)
	if err != nil {
		return err
	}
	if !c.JSON {
		showPersonal(&c.looking, p.Counts)
		if n := p.Undelivered(); n > 0 {
			terminal.Printf(c.Stdout, "%s not delivered everywhere yet, and forwarders may have them in hand: run the command again once waybill status shows that nothing is pending\n", isAre(n))
		}
		if p.Source != "" {
			terminal.Printf(c.Stdout, "the log is %s: its records stay\n", p.Source)
		}
	}
	operation, _ := admin.Named(admin.OnDeliveries, "purge")
	return c.run(cmd, p, words{Operation: operation, one: "row", many: "rows", next: again}, map[string]any{"counts": p.Counts})
}

// showPersonal prints what tables have of one person.
func showPersonal(l *looking, counts []store.PersonalCount) {
	if len(counts) == 0 {
		return
	}
	t := command.NewTable(l.Stdout, "table", "rows", "undelivered", "oldest", "newest")
	for _, c := range counts {
		t.AppendRow(table.Row{c.Table, c.Rows, plannedText(c.Undelivered), command.TimeOrDash(c.Oldest), command.TimeOrDash(c.Newest)})
	}
	t.Render()
}
