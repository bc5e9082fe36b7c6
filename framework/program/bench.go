package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/program/internal/bench"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

func newBench(p *command.Invocation) *cobra.Command {
	b := &benchmark{Invocation: p}
	cmd := &cobra.Command{
		Use:   "bench [SCENARIO...]",
		Short: "Measure this machine, a database and its sinks",
		Long: `Measure publishing and delivering on this machine: with SQLite and receivers inside
the process, or with a database, sinks and settings of your own.

  publish   what notifications cost the transactions that publish them
  drain     how fast a backlog is delivered
  latency   the time from a commit to the sink's receipt, at a steady rate
  sustain   publishing and delivering together: lag, size of the tables, memory
  sweep     throughput for several parallelism thresholds, to choose one
  fault     a dead sink, and a transaction that stays open

Without a scenario it measures the first three, which takes a minute or two; "all"
measures everything. The last lines say what to do about the figures.
docs/benchmarking.md explains how to read the rest.

Each case is measured --runs times after a warm-up, which does not count; the cases of
a scenario take turns. The receivers report what arrived: if a notification was lost,
or one arrived that was never published, the exit code is 1.

The bench makes its own tables with random names, waybill_bench_…, and drops them at
the end, also after an error or SIGINT. It reads and writes no other tables. You can
replace these parts:

  --database   the database in which to make the tables. For a SQLite file, the
               bench makes a separate file in the same folder.
  -c           a configuration, with its database and the settings of its tables,
               forwarder and sinks. waybill.yaml is not read unless -c names it. A
               receiver inside the process takes the place of each sink.
  --sinks      without -c, receivers inside the process: noop, kafka, http, smtp.
               With -c, configured sinks that get real deliveries: their receivers
               get made-up notifications. The command asks first, or needs --yes.
  --sample     a notification of your own, for sinks that cannot take made-up ones.`,
		Example: `  waybill bench
  waybill bench drain --rows 300000 --database postgres://app@localhost/app
  waybill bench sweep --delay 20ms --json > sweep.json && waybill bench plot sweep.json > sweep.html
  waybill bench latency -c waybill.yaml --sinks events
  waybill bench drain -c waybill.yaml --sinks mail --sample order.placed=order.json`,
		ValidArgs: append(bench.AllScenarios(), "all"),
		Args:      cobra.ArbitraryArgs, // Validate checks them
		RunE:      b.run,
	}
	f := cmd.Flags()
	f.StringVarP(&b.flags.File, "config", "c", "", "configuration file")
	f.StringVar(&b.flags.Database, "database", "", "address of the database, instead of the configuration's or of a temporary SQLite file; others see a password in it")
	f.StringSliceVar(&b.Sinks, "sinks", nil, "configured sinks, or without a configuration receivers inside the process (default: a receiver for each configured sink, or all receivers)")
	f.StringVar(&b.sample, "sample", "", "notification of your own, as TYPE=FILE with a file of its payload; TYPE=- for standard input")
	f.IntVar(&b.Rows, "rows", 0, "notifications in a backlog (default: as many as take about a second)")
	f.IntVar(&b.Runs, "runs", bench.DefaultRuns, "runs that count, after a warm-up")
	f.IntSliceVar(&b.Thresholds, "threshold", nil, "parallelism threshold; several are measured in sweep (default: the sink's, and 1 to 1024 in sweep)")
	f.DurationVar(&b.Delay, "delay", 0, "how long receivers inside the process take for each delivery (default 0s, in sweep 5ms)")
	f.DurationVar(&b.Duration, "duration", 0, "how long a run takes (default 1s in publish, 2s in latency, 20s in sustain)")
	f.BoolVar(&b.yes, "yes", false, "do not ask for confirmation")
	f.BoolVar(&b.json, "json", false, "print the result as JSON")
	cmd.AddCommand(newBenchCompare(p), newBenchPlot(p))
	return cmd
}

type benchmark struct {
	*command.Invocation
	bench.Config
	flags     command.SourceFlags
	sample    string
	json, yes bool
}

func (b *benchmark) run(cmd *cobra.Command, args []string) error {
	b.Scenarios, b.Version = args, readBuild(b.Name).Version
	if err := errors.Join(b.readSample(cmd), b.configure(cmd)); err != nil {
		return err
	}
	if err := b.Validate(); err != nil {
		return command.WrongUsage(cmd, err)
	}
	if agreed, err := b.agree(cmd); err != nil || !agreed {
		return err
	}
	progress := bench.NewProgress(b.Stderr)
	result, err := bench.Run(cmd.Context(), b.Config, progress)
	progress.Close()
	switch {
	case result == nil:
		return err
	case b.json:
		return errors.Join(err, command.PrintJSON(b.Stdout, result))
	}
	bench.Print(b.Stdout, result)
	return err
}

// readSample reads the notification of --sample. Its version is the one that the program writes, if the
// type is registered, else 1.
func (b *benchmark) readSample(cmd *cobra.Command) error {
	if b.sample == "" {
		return nil
	}
	name, file, found := strings.Cut(b.sample, "=")
	if !found || name == "" || file == "" {
		return command.WrongUsage(cmd, errors.New("--sample: use TYPE=FILE, such as order.placed=order.json"))
	}
	read := func() ([]byte, error) { return os.ReadFile(file) }
	if file == "-" {
		read = func() ([]byte, error) { return io.ReadAll(cmd.InOrStdin()) }
	}
	text, err := read()
	var payload bytes.Buffer // as a publisher would write it
	if err == nil {
		err = json.Compact(&payload, text)
	}
	if err != nil {
		return command.WrongUsage(cmd, fmt.Errorf("--sample: %w", err))
	}
	b.Sample = bench.Sample{Type: name, Version: 1, Payload: payload.Bytes()}
	if b.Options.Types != nil {
		info, known := b.Options.Types.Lookup(name)
		if !known {
			return command.WrongUsage(cmd, fmt.Errorf("--sample: the program has no type %q", name))
		}
		b.Sample.Type, b.Sample.Version = info.Name, info.Version
	}
	return nil
}

// configure reads --database and -c. It builds sinks, which needs their secrets, only if
// --sinks names some.
func (b *benchmark) configure(cmd *cobra.Command) (err error) {
	if b.flags.File == "" {
		if b.flags.Database == "" {
			return nil
		}
		if b.Database, err = config.ParseDatabase(b.flags.Database); err != nil {
			return command.WrongUsage(cmd, fmt.Errorf("--database %w", err))
		}
		return nil
	}
	source := config.Source{File: b.flags.File, Database: b.flags.Database, Environ: b.Environ}
	tables, err := config.LoadTables(source)
	if err != nil {
		return err
	}
	b.Database = tables.Database
	if b.Configured, err = config.LoadDeliveries(source, b.Options); err != nil {
		return err
	}
	b.Build = func() (*config.Config, error) { return config.Load(source, b.Options) }
	if len(b.Sinks) > 0 {
		_, err = b.Build() // report mistakes before anything starts
	}
	return err
}

// agree prints what the bench will do to the user's database and sinks, and asks for consent if it
// could do harm.
func (b *benchmark) agree(cmd *cobra.Command) (bool, error) {
	plan, consent := b.Plan()
	if b.flags.File == "" {
		if _, err := os.Stat(config.DefaultFile); err == nil {
			plan = append(plan, config.DefaultFile+" is not read: use -c to measure with it.")
		}
	}
	for _, line := range plan {
		terminal.Println(b.Stderr, line)
	}
	if !consent || b.yes {
		return true, nil
	}
	if b.json || !command.IsTerminal(cmd.InOrStdin()) {
		return false, command.WrongUsage(cmd, errors.New("there is no terminal to ask on: read the lines above, then use --yes"))
	}
	fmt.Fprint(b.Stderr, "Go on? [y/N] ")
	yes, err := command.SaysYes(cmd.Context(), cmd.InOrStdin())
	if err == nil && !yes {
		terminal.Println(b.Stderr, "nothing was done")
	}
	return yes, err
}
