package program

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/tracing"
)

const rootHelp = `Waybill is a transactional outbox: an application publishes notifications inside
its own database transaction, and waybill forward carries each of them to the
sinks that are chosen for its type.

Results go to stdout, logs and errors to stderr.

Commands read waybill.yaml in the current folder, or the file that -c names. Each
key is an environment variable too: WAYBILL_FORWARDER_LEASE is forwarder.lease,
and wins over the file. Values of the file may name other variables: ${NAME}, or
${NAME:-default}. A value that begins with file:, in either, is what that file
holds: file:/run/secrets/partner.

Exit codes:

    0    done, or stopped gracefully by SIGINT or SIGTERM
    1    something failed while running
    2    wrong usage or configuration; nothing was started
    130  ended by a signal before it was done`

// newRoot makes the command tree.
func newRoot(p *invocation) *cobra.Command {
	root := &cobra.Command{
		Use:               p.name,
		Short:             "A transactional outbox for Go",
		Long:              rootHelp,
		Args:              noSuchCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(*cobra.Command, []string) error { return p.makeLogger() },
		SilenceErrors:     true, // run prints them
		SilenceUsage:      true,
		DisableAutoGenTag: true, // the reference is compared with its source
	}
	root.SuggestionsMinimumDistance = 2
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return wrongUsage(cmd, err) })
	root.PersistentFlags().StringVar(&p.logFormat, "log-format", "text", "how logs are written: text or json")
	root.PersistentFlags().StringVar(&p.logLevel, "log-level", "info", "least severe logs that are written: debug, info, warn or error")
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
	return root
}

// noSuchCommand is for the root and for groups of commands, such as parked: an argument that
// reaches them is an unknown command.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return wrongUsage(cmd, fmt.Errorf("unknown command %q%s", args[0], hint))
}

// noArguments is for commands that have flags only.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return wrongUsage(cmd, fmt.Errorf("unexpected argument %q", args[0]))
}

// invocation is what the commands share: where they read and write, what the program is
// made of, and the flags that all of them have.
type invocation struct {
	environ        []string
	stdout, stderr io.Writer
	name           string // of the program
	options        config.Options

	logFormat, logLevel string
	logger              *slog.Logger
}

// makeLogger runs before each command.
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
		p.logger = slog.New(tracing.LogHandler(slog.NewJSONHandler(p.stderr, handler)))
	default:
		return &usageError{fmt.Errorf("--log-format is %q: use text or json", p.logFormat)}
	}
	p.options.Logger = p.logger
	return nil
}

// sourceFlags are the flags of commands that read a configuration.
type sourceFlags struct{ file, database, in string }

func (f *sourceFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.file, "config", "c", "", "configuration file (default: "+config.DefaultFile+", if it exists)")
	cmd.Flags().StringVar(&f.database, "database", "", "address of the database, in place of the configuration's")
}

// source says where the configuration comes from.
func (p *invocation) source(f sourceFlags) config.Source {
	s := config.Source{File: f.file, Database: f.database, Environ: p.environ}
	if _, err := os.Stat(config.DefaultFile); s.File == "" && err == nil {
		s.File = config.DefaultFile
	}
	return s
}

// fileSource is source for commands that need a file.
func (p *invocation) fileSource(cmd *cobra.Command, f sourceFlags) (config.Source, error) {
	s := p.source(f)
	if s.File == "" {
		return s, wrongUsage(cmd, errors.New("there is no "+config.DefaultFile+" here: name a configuration with -c"))
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

// print reports an error to the user: one line, or one for each mistake of a
// configuration, as a log entry where logs are to be JSON.
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
		fmt.Fprintln(p.stderr, mistakes)
	case asJSON:
		p.logger.Error("failed", "error", err)
	default:
		fmt.Fprintln(p.stderr, p.name+":", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}
