package program

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"

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
  fault     a dead sink, a transaction that stays open, and a large backlog

Without a scenario it measures the first three, which takes a minute or two; "all"
measures everything. docs/benchmarking.md explains how to read the result.

Each case is measured --runs times after a warm-up, which does not count; the cases of
a scenario take turns. The output says what each run finds in caches. The receivers
report what arrived: if a notification was lost, or one arrived that was never
published, the exit code is 1.

The bench makes its own tables with random names, waybill_bench_…, and drops them at
the end, also after an error or SIGINT. It reads and writes no other tables. You can
replace these parts:

  --database   the database in which to make the tables. For a SQLite file, the
               bench makes a separate file in the same folder.
  -c           a configuration, with its database and the settings of its tables,
               forwarder and sinks. waybill.yaml is not read unless -c names it. A
               receiver inside the process takes the place of each sink.
  --sinks      configured sinks that get real deliveries. Their receivers get
               made-up notifications, so the command asks first.
  --type, --data   a notification of your own, for sinks that cannot take made-up
               ones: its type, and a file with its payload.

--against compares the result with an earlier one, as bench compare does. The exit code
is 1 if a figure is worse by more than --tolerance and chance does not explain the
difference; the output names these figures.`,
		Example: `  waybill bench
  waybill bench drain --rows 300000 --database postgres://app@localhost/app
  waybill bench sweep --delay 20ms --html report.html
  waybill bench latency -c waybill.yaml --sinks events --rate 200
  waybill bench drain -c waybill.yaml --sinks mail --type order.placed --data order.json
  waybill bench --json > before.json
  waybill bench --against before.json --tolerance 20%`,
		ValidArgs: append(bench.AllScenarios(), "all"),
		Args:      cobra.ArbitraryArgs, // Validate checks them
		RunE:      b.run,
	}
	f := cmd.Flags()
	f.StringVarP(&b.flags.File, "config", "c", "", "configuration file")
	f.StringVar(&b.flags.Database, "database", "", "address of the database, instead of the configuration's or of a temporary SQLite file; others see a password in it")
	f.StringSliceVar(&b.Sinks, "sinks", nil, "configured sinks that get real deliveries")
	f.StringSliceVar(&b.Receivers, "receivers", nil, "receivers inside the process: noop, kafka, http, smtp (default: one for each configured sink; without a configuration, all)")
	f.StringVar(&b.Sample.Type, "type", "", "type of a notification of your own, instead of made-up ones")
	f.StringVar(&b.data, "data", "", "file with the payload of that notification; - for standard input")
	f.IntVar(&b.Rows, "rows", 0, "notifications in a backlog (default: as many as take about a second)")
	f.IntVar(&b.Runs, "runs", bench.DefaultRuns, "runs that count, after a warm-up")
	f.IntVar(&b.PayloadBytes, "payload-bytes", bench.DefaultPayloadBytes, "size of a payload in bytes")
	f.IntVar(&b.Keys, "keys", bench.DefaultKeys, "number of keys that the notifications are spread over")
	f.IntSliceVar(&b.Clients, "clients", bench.DefaultClients, "numbers of concurrent publishers to measure in publish")
	f.IntVar(&b.Threshold, "threshold", 0, "parallelism threshold (default: the sink's)")
	f.IntSliceVar(&b.Thresholds, "thresholds", bench.DefaultThresholds, "parallelism thresholds to measure in sweep")
	f.DurationVar(&b.Delay, "delay", 0, "how long receivers inside the process take for each delivery (default 0s, in sweep 5ms)")
	f.IntVar(&b.Rate, "rate", 0, "transactions per second (default 500 in latency, as many as possible in sustain)")
	f.DurationVar(&b.Duration, "duration", 0, "how long a run takes (default 1s in publish, 2s in latency, 20s in sustain)")
	f.IntVar(&b.Backlog, "backlog", bench.DefaultBacklog, "notifications in the large backlog of fault")
	f.BoolVar(&b.yes, "yes", false, "do not ask for confirmation")
	f.StringVar(&b.html, "html", "", "file to write the result to, as a page with plots that needs no network")
	f.BoolVar(&b.json, "json", false, "print the result as JSON")
	f.StringVar(&b.profile, "cpu-profile", "", "file to write a CPU profile of the whole bench to, for go tool pprof")
	f.StringVar(&b.against.file, "against", "", "earlier result (from --json) to compare with; exit code 1 if a figure is worse")
	b.against.tolerance = defaultTolerance
	f.Var(&b.against.tolerance, "tolerance", "how much worse than in the earlier result a figure may be")
	cmd.AddCommand(newBenchCompare(p))
	return cmd
}

type benchmark struct {
	*command.Invocation
	bench.Config
	flags     command.SourceFlags
	html      string
	profile   string
	data      string
	yes, json bool
	against   against
}

func (b *benchmark) run(cmd *cobra.Command, args []string) error {
	b.Scenarios, b.Version = args, readBuild(b.Name).Version
	if err := errors.Join(b.readSample(cmd), b.configure(cmd)); err != nil {
		return err
	}
	if err := errors.Join(b.Validate(), b.against.read(cmd, b.Config)); err != nil {
		return command.WrongUsage(cmd, err)
	}
	if agreed, err := b.agree(cmd); err != nil || !agreed {
		return err
	}
	page, err := createFile("--html", b.html)
	if err != nil {
		return command.WrongUsage(cmd, err)
	}
	profile, err := createFile("--cpu-profile", b.profile)
	if err != nil {
		return errors.Join(command.WrongUsage(cmd, err), removeFile(page))
	}
	progress := bench.NewProgress(b.Stderr)
	result, err := b.measure(cmd.Context(), profile, progress)
	progress.Close()
	if result == nil {
		return errors.Join(err, removeFile(page), removeFile(profile))
	}
	if profile != nil {
		err = errors.Join(err, profile.Close())
	}
	if page != nil {
		err = errors.Join(err, result.WriteHTML(page), page.Close())
	}
	worse := b.against.judge(result)
	if b.json {
		return errors.Join(err, command.PrintJSON(b.Stdout, result), worse)
	}
	result.Print(b.Stdout)
	b.against.print(b.Stdout, result.Against)
	return errors.Join(err, worse)
}

// measure runs the bench, and writes a profile of it where there is a file for one.
func (b *benchmark) measure(ctx context.Context, profile *os.File, progress bench.Progress) (*bench.Result, error) {
	if profile != nil {
		if err := pprof.StartCPUProfile(profile); err != nil {
			return nil, fmt.Errorf("--cpu-profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	return bench.Run(ctx, b.Config, progress)
}

// createFile makes the file of a flag. It runs before the measurement, which may take an
// hour. It returns nil if the flag names no file.
func createFile(flag, name string) (*os.File, error) {
	if name == "" {
		return nil, nil
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return file, nil
}

func removeFile(file *os.File) error {
	if file == nil {
		return nil
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// readSample reads the notification of --type and --data. Its version is the one that the
// program writes, if the type is registered, else 1.
func (b *benchmark) readSample(cmd *cobra.Command) error {
	if b.data == "" && b.Sample.Type == "" {
		return nil
	}
	if b.data == "" || b.Sample.Type == "" {
		return command.WrongUsage(cmd, errors.New("--type and --data describe one notification: give both"))
	}
	if cmd.Flags().Changed("payload-bytes") {
		return command.WrongUsage(cmd, errors.New("--payload-bytes applies to made-up payloads: leave it out with --data"))
	}
	s := sample{file: b.data}
	if err := s.read(cmd); err != nil {
		return command.WrongUsage(cmd, err)
	}
	var payload bytes.Buffer // as a publisher would write it
	if err := json.Compact(&payload, s.payload); err != nil {
		return command.WrongUsage(cmd, fmt.Errorf("--data: %w", err))
	}
	b.Sample.Version, b.Sample.Payload = 1, payload.Bytes()
	if b.Options.Types != nil {
		info, known := b.Options.Types.Lookup(b.Sample.Type)
		if !known {
			return command.WrongUsage(cmd, fmt.Errorf("--type: the program has no type %q", b.Sample.Type))
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

// agree prints what the bench will do to the user's database and sinks, and asks for
// consent if it could do harm.
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
