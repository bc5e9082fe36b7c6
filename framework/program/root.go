package program

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/operate"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

const rootHelp = `Waybill is a transactional outbox: an application publishes notifications inside
its own database transaction, and waybill forward delivers each of them to the
sinks that its type is routed to.

Results go to stdout, logs and errors to stderr.

Commands read waybill.yaml in the current folder, or the file that -c names. An
environment variable overrides a key of the file: WAYBILL_FORWARDER_LEASE sets
forwarder.lease. Values in the file may refer to other variables with ${NAME}, or
${NAME:-default}. A value that begins with file: is read from that file, as in
file:/run/secrets/partner; that works in the file and in variables.

Exit codes:

    0    success, or a graceful stop after SIGINT or SIGTERM
    1    the command failed while it ran
    2    wrong usage or a mistake in the configuration; nothing was started
    130  a signal ended the command before it was done`

// newRoot makes the command tree.
func newRoot(p *command.Invocation) *cobra.Command {
	root := &cobra.Command{
		Use:   p.Name,
		Short: "Run and inspect a transactional outbox",
		Long:  rootHelp,
		Args:  command.NoSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			err := p.MakeLogger()
			if err == nil {
				p.WarnOfPassword(cmd)
			}
			return err
		},
		SilenceErrors:     true, // run prints them
		SilenceUsage:      true,
		DisableAutoGenTag: true, // a date would make docs/cli.md differ on every run
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetOut(p.Stdout)
	root.SetErr(terminal.Writer(p.Stderr))
	root.SetFlagErrorFunc(command.WrongUsage)
	root.PersistentFlags().StringVar(&p.LogFormat, "log-format", "text", "format of the logs: text or json")
	root.PersistentFlags().StringVar(&p.LogLevel, "log-level", "info", "lowest level that is logged: debug, info, warn or error")
	root.AddCommand(
		newDemo(p),
		newBench(p),
		newMigrate(p),
		newForward(p),
		newHealth(p),
		newPrint(p),
		newDoctor(p),
		newConfig(p),
		newMail(p),
		newMCP(p),
		newVersion(p),
		newDocs(p),
	)
	root.AddCommand(operate.Commands(p)...)
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = knownCommand
	p.NameCommands(root)
	return root
}

// knownCommand is the Args of help, whose arguments name a command.
func knownCommand(help *cobra.Command, args []string) error {
	cmd, rest, err := help.Root().Find(args)
	return cmp.Or(err, command.NoSuchCommand(cmd, rest))
}
