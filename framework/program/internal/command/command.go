// Package command has what all commands of the program share: the invocation with its flags, the choice of a
// database, and how results are printed.
package command

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/tracing"
)

// NeedsDatabaseOnly ends the help of commands that work without a configuration file.
const NeedsDatabaseOnly = `The command reads only the keys that locate the outbox. With --database or
WAYBILL_DATABASE it needs no configuration file.`

// NoSuchCommand is the Args of commands that have subcommands: an argument that reaches
// them names a command that does not exist.
func NoSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return WrongUsage(cmd, fmt.Errorf("unknown command %q%s", args[0], hint))
}

// WrongFlag is the error for a flag that a command does not take, for commands that only have
// subcommands, such as parked. It lists the subcommands, since they have the flags. They inherit
// WrongFlag, which is WrongUsage for them.
func WrongFlag(cmd *cobra.Command, err error) error {
	if !cmd.HasAvailableSubCommands() {
		return WrongUsage(cmd, err)
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return WrongUsage(cmd, fmt.Errorf("%w; name a command before its flags: %s", err, strings.Join(names, ", ")))
}

// NoArguments is the Args of commands that have flags only.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return WrongUsage(cmd, fmt.Errorf("unexpected argument %q", args[0]))
}

// Arguments is the Args of commands that take n arguments; missing says which.
func Arguments(n int, missing string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < n {
			return WrongUsage(cmd, errors.New(missing))
		}
		return NoArguments(cmd, args[n:])
	}
}

// Invocation is what all commands share: environment, outputs, the program's options,
// and the flags of the root.
type Invocation struct {
	Environ []string
	// Stdout prints for people and escapes what is not visible; Raw does not. Stderr is raw too,
	// since bars of progress move the cursor.
	Stdout, Raw, Stderr io.Writer
	Name                string // the program's name
	Licenses            string // of its own modules
	Options             config.Options

	LogFormat, LogLevel string
	Logger              *slog.Logger

	stock *regexp.Regexp // matches commands of a program that is called waybill
}

// stockName is the name of the program in all texts.
const stockName = "waybill"

// NameCommands puts the program's name before its commands in all help, as in waybill status, and from then on
// in what Named returns. The root has all its commands.
func (p *Invocation) NameCommands(root *cobra.Command) {
	if p.Name == stockName {
		return
	}
	var names []string
	for _, c := range root.Commands() {
		names = append(names, c.Name())
	}
	p.stock = regexp.MustCompile(`\b` + stockName + ` (` + strings.Join(names, "|") + `)\b`)
	p.nameBelow(root)
}

func (p *Invocation) nameBelow(cmd *cobra.Command) {
	for _, text := range []*string{&cmd.Short, &cmd.Long, &cmd.Example} {
		*text = p.Named(*text)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = p.Named(f.Usage) })
	for _, below := range cmd.Commands() {
		p.nameBelow(below)
	}
}

// Named returns a text in which commands have the program's name.
func (p *Invocation) Named(text string) string {
	if p.stock == nil {
		return text
	}
	return p.stock.ReplaceAllString(text, strings.ReplaceAll(p.Name, "$", "$$")+" $1")
}

// MakeLogger makes the logger from the flags. It runs before each command.
func (p *Invocation) MakeLogger() error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(p.LogLevel)); err != nil {
		return &UsageError{fmt.Errorf("--log-level is %q: use debug, info, warn or error", p.LogLevel)}
	}
	handler := &slog.HandlerOptions{Level: level}
	switch p.LogFormat {
	case "text":
		p.Logger = slog.New(tracing.LogHandler(slog.NewTextHandler(p.Stderr, handler)))
	case "json":
		p.Logger = slog.New(tracing.LogHandler(slog.NewJSONHandler(terminal.JSON(p.Stderr), handler)))
	default:
		return &UsageError{fmt.Errorf("--log-format is %q: use text or json", p.LogFormat)}
	}
	p.Options.Logger = p.Logger
	return nil
}

// WarnOfPassword warns of a password in the flag that has the database's address.
func (p *Invocation) WarnOfPassword(cmd *cobra.Command) {
	if f := cmd.Flags().Lookup("database"); f != nil && config.HasPassword(f.Value.String()) {
		p.Logger.Warn("the address in --database has a password, which everyone on this machine can see in the list of processes: " +
			"put the address into WAYBILL_DATABASE, or into the configuration as database: file:/run/secrets/database")
	}
}

// SourceFlags are the flags of commands that read a configuration.
type SourceFlags struct{ File, Database, In string }

// Add adds the flags.
func (f *SourceFlags) Add(cmd *cobra.Command) {
	f.AddFile(cmd)
	cmd.Flags().StringVar(&f.Database, "database", "", "address of the database, instead of the configuration's; others see a password in it, so set WAYBILL_DATABASE instead")
}

// AddFile adds only the flag that names the file, for commands that need no database.
func (f *SourceFlags) AddFile(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.File, "config", "c", "", "configuration file (default: "+config.DefaultFile+", if it exists)")
}

// Source returns where the configuration comes from: the file of -c, else waybill.yaml
// if it exists, else no file.
func (p *Invocation) Source(f SourceFlags) config.Source {
	s := config.Source{File: f.File, Database: f.Database, Environ: p.Environ}
	if _, err := os.Stat(config.DefaultFile); s.File == "" && err == nil {
		s.File = config.DefaultFile
	}
	return s
}

// FileSource is source for commands that need a configuration file.
func (p *Invocation) FileSource(cmd *cobra.Command, f SourceFlags) (config.Source, error) {
	s := p.Source(f)
	if s.File == "" {
		return s, WrongUsage(cmd, errors.New("there is no "+config.DefaultFile+" in this folder: name a configuration file with -c"))
	}
	return s, nil
}

// UsageError is a mistake on the command line.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// WrongUsage returns the error of a mistake, with where to read how the command is used.
func WrongUsage(cmd *cobra.Command, err error) error {
	return &UsageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
}

// Print prints an error on one line, or each mistake of a configuration on its own. With
// --log-format json they are log entries.
func (p *Invocation) Print(err error) {
	var mistakes *config.Error
	asJSON := p.Logger != nil && p.LogFormat == "json"
	switch {
	case err == nil:
	case errors.As(err, &mistakes) && asJSON:
		for _, m := range mistakes.Mistakes {
			p.Logger.Error("mistake in the configuration", "where", m.Where, "line", m.Line, "error", p.Named(m.Text))
		}
	case errors.As(err, &mistakes):
		fmt.Fprintln(terminal.Writer(p.Stderr), p.Named(mistakes.Error()))
	case asJSON:
		p.Logger.Error("failed", "error", p.Named(err.Error()))
	default:
		terminal.Println(p.Stderr, p.Name+":", p.Named(strings.ReplaceAll(err.Error(), "\n", "; ")))
	}
}
