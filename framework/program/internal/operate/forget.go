package operate

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store"
)

func newForget(p *command.Invocation) *cobra.Command {
	f := &forget{Invocation: p}
	cmd := &cobra.Command{
		Use:   "forget SINK",
		Short: "Delete what the outbox keeps for a removed sink",
		Long: `Delete the cursors, parked deliveries and receipts of a sink that was removed from the
configuration. Until then the log keeps every row that the sink has not settled. The
deleted parked deliveries are never made.

The command shows how much it would delete and asks first; scripts use --yes. It
refuses a sink that a forwarder still works on. A new sink of the same name starts
where sinks.NAME.start says, by default after the last row that is then in the log.

` + command.NeedsDatabaseOnly,
		Example: `  waybill forget partner
  waybill forget partner --yes --json --database postgres://app@localhost/app`,
		Args: command.Arguments(1, "name a sink"),
		RunE: f.run,
	}
	f.flags.Add(cmd)
	f.flags.AddIn(cmd)
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the result as JSON; needs --yes")
	return cmd
}

type forget struct {
	*command.Invocation
	flags     command.SourceFlags
	yes, json bool
}

func (f *forget) run(cmd *cobra.Command, args []string) error {
	if !f.yes && (f.json || !command.IsTerminal(cmd.InOrStdin())) {
		return command.WrongUsage(cmd, errors.New("there is no terminal to ask on: check with waybill status, then use --yes"))
	}
	source, err := f.One(cmd, f.flags)
	if err != nil {
		return err
	}
	tables, err := config.LoadTables(source)
	if err != nil {
		return err
	}
	outbox, cleanup, err := openStore(cmd.Context(), tables)
	if err != nil {
		return err
	}
	defer cleanup()
	if !f.yes {
		traces, err := outbox.Traces(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		terminal.Printf(f.Stdout, "%s has %s. Delete them? [y/N] ", args[0], tracesText(traces))
		yes, err := command.SaysYes(cmd.Context(), cmd.InOrStdin())
		if err != nil || !yes {
			terminal.Println(f.Stdout, "nothing was deleted")
			return err
		}
	}
	traces, err := outbox.Forget(cmd.Context(), args[0])
	switch {
	case errors.Is(err, store.ErrLeaseHeld):
		return fmt.Errorf("%w: remove the sink from the configuration of that forwarder first", err)
	case err != nil:
		return err
	}
	if f.json {
		return command.PrintJSON(f.Stdout, traces)
	}
	terminal.Printf(f.Stdout, "deleted %s of %s\n", tracesText(traces), args[0])
	return nil
}

func tracesText(t store.Traces) string {
	return fmt.Sprintf("%s, %s and %s", command.CountText(t.Cursors, "cursor", "cursors"),
		command.CountText(t.Parked, "parked delivery", "parked deliveries"), command.CountText(t.Receipts, "receipt", "receipts"))
}
