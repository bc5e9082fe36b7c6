package program

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/tracing"
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

// needsDatabaseOnly ends the help of commands that work without a configuration file.
const needsDatabaseOnly = `The command reads only the keys that locate the outbox. With --database or
WAYBILL_DATABASE it needs no configuration file.`

// newRoot makes the command tree.
func newRoot(p *invocation) *cobra.Command {
	root := &cobra.Command{
		Use:   p.name,
		Short: "Run and inspect a transactional outbox",
		Long:  rootHelp,
		Args:  noSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			err := p.makeLogger()
			if err == nil {
				p.warnOfPassword(cmd)
			}
			return err
		},
		SilenceErrors:     true, // run prints them
		SilenceUsage:      true,
		DisableAutoGenTag: true, // a date would make docs/cli.md differ on every run
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetOut(p.stdout)
	root.SetErr(terminal.Writer(p.stderr))
	root.SetFlagErrorFunc(wrongUsage)
	root.PersistentFlags().StringVar(&p.logFormat, "log-format", "text", "format of the logs: text or json")
	root.PersistentFlags().StringVar(&p.logLevel, "log-level", "info", "lowest level that is logged: debug, info, warn or error")
	root.AddCommand(
		newDemo(p),
		newBench(p),
		newMigrate(p),
		newForward(p),
		newHealth(p),
		newPrint(p),
		newStatus(p),
		newDoctor(p),
		newTypes(p),
		newWhy(p),
		newTrace(p),
		newParked(p),
		newReplay(p),
		newExport(p),
		newPause(p),
		newResume(p),
		newActions(p),
		newForget(p),
		newSchedules(p),
		newConfig(p),
		newMail(p),
		newVersion(p),
		newDocs(p),
	)
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = knownCommand
	return root
}

// knownCommand is the Args of help, whose arguments name a command.
func knownCommand(help *cobra.Command, args []string) error {
	cmd, rest, err := help.Root().Find(args)
	return cmp.Or(err, noSuchCommand(cmd, rest))
}

// noSuchCommand is the Args of commands that have subcommands: an argument that reaches
// them names a command that does not exist.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return wrongUsage(cmd, fmt.Errorf("unknown command %q%s", args[0], hint))
}

// wrongFlag is the error for a flag that a command does not take, for commands that only have
// subcommands, such as parked. It lists the subcommands, since they have the flags. They inherit
// wrongFlag, which is wrongUsage for them.
func wrongFlag(cmd *cobra.Command, err error) error {
	if !cmd.HasAvailableSubCommands() {
		return wrongUsage(cmd, err)
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return wrongUsage(cmd, fmt.Errorf("%w; name a command before its flags: %s", err, strings.Join(names, ", ")))
}

// noArguments is the Args of commands that have flags only.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return wrongUsage(cmd, fmt.Errorf("unexpected argument %q", args[0]))
}

// invocation is what all commands share: environment, outputs, the program's options,
// and the flags of the root.
type invocation struct {
	environ []string
	// stdout prints for people and escapes what is not visible; raw does not. stderr is raw too,
	// since bars of progress move the cursor.
	stdout, raw, stderr io.Writer
	name                string // the program's name
	options             config.Options

	logFormat, logLevel string
	logger              *slog.Logger
}

// makeLogger makes the logger from the flags. It runs before each command.
func (p *invocation) makeLogger() error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(p.logLevel)); err != nil {
		return &usageError{fmt.Errorf("--log-level is %q: use debug, info, warn or error", p.logLevel)}
	}
	handler := &slog.HandlerOptions{Level: level}
	switch p.logFormat {
	case "text":
		p.logger = slog.New(tracing.LogHandler(slog.NewTextHandler(p.stderr, handler)))
	case "json":
		p.logger = slog.New(tracing.LogHandler(slog.NewJSONHandler(terminal.JSON(p.stderr), handler)))
	default:
		return &usageError{fmt.Errorf("--log-format is %q: use text or json", p.logFormat)}
	}
	p.options.Logger = p.logger
	return nil
}

// warnOfPassword warns of a password in the flag that has the database's address.
func (p *invocation) warnOfPassword(cmd *cobra.Command) {
	if f := cmd.Flags().Lookup("database"); f != nil && config.HasPassword(f.Value.String()) {
		p.logger.Warn("the address in --database has a password, which everyone on this machine can see in the list of processes: " +
			"put the address into WAYBILL_DATABASE, or into the configuration as database: file:/run/secrets/database")
	}
}

// sourceFlags are the flags of commands that read a configuration.
type sourceFlags struct{ file, database, in string }

func (f *sourceFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.file, "config", "c", "", "configuration file (default: "+config.DefaultFile+", if it exists)")
	cmd.Flags().StringVar(&f.database, "database", "", "address of the database, instead of the configuration's; others see a password in it, so set WAYBILL_DATABASE instead")
}

// source returns where the configuration comes from: the file of -c, else waybill.yaml
// if it exists, else no file.
func (p *invocation) source(f sourceFlags) config.Source {
	s := config.Source{File: f.file, Database: f.database, Environ: p.environ}
	if _, err := os.Stat(config.DefaultFile); s.File == "" && err == nil {
		s.File = config.DefaultFile
	}
	return s
}

// fileSource is source for commands that need a configuration file.
func (p *invocation) fileSource(cmd *cobra.Command, f sourceFlags) (config.Source, error) {
	s := p.source(f)
	if s.File == "" {
		return s, wrongUsage(cmd, errors.New("there is no "+config.DefaultFile+" in this folder: name a configuration file with -c"))
	}
	return s, nil
}

// usageError is a mistake on the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func wrongUsage(cmd *cobra.Command, err error) error {
	return &usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
}

// print prints an error on one line, or each mistake of a configuration on its own. With
// --log-format json they are log entries.
func (p *invocation) print(err error) {
	var mistakes *config.Error
	asJSON := p.logger != nil && p.logFormat == "json"
	switch {
	case err == nil:
	case errors.As(err, &mistakes) && asJSON:
		for _, m := range mistakes.Mistakes {
			p.logger.Error("mistake in the configuration", "where", m.Where, "line", m.Line, "error", m.Text)
		}
	case errors.As(err, &mistakes):
		fmt.Fprintln(terminal.Writer(p.stderr), mistakes)
	case asJSON:
		p.logger.Error("failed", "error", err)
	default:
		terminal.Println(p.stderr, p.name+":", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}
