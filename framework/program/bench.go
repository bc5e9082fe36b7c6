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
)

func newBench(p *invocation) *cobra.Command {
	b := &benchmark{invocation: p}
	cmd := &cobra.Command{
		Use:   "bench [SCENARIO...]",
		Short: "Measure this machine, a database and its sinks",
		Long: `Measure publishing and delivering on this machine, with SQLite and receivers inside
the process or with a database, sinks and settings of your own.

  publish   what notifications cost the transactions that publish them
  drain     how fast a backlog is delivered
  latency   the time from a commit to the sink's receipt, at a steady rate
  sustain   publishing and delivering together: lag, size of the tables, memory
  sweep     throughput over the parallelism threshold, to choose one
  fault     with a dead sink, a transaction held open, and a large backlog

Without a name the first three are measured, which takes a minute or two; "all" is
everything. docs/benchmarking.md explains how to read the result.

Each case is measured --runs times after a warm-up, which is not counted, the cases
of a scenario in turns. The output says what each run finds in caches. The receivers report what arrived: if a notification was lost, or one arrived
that was never published, the exit code is 1.

Everything happens in the bench's own tables with random names, waybill_bench_…,
which are dropped at the end, also after an error or SIGINT. No others are read or
written. What can be your own:

  --database   where these tables are made. For a SQLite file the bench makes one
               of its own beside it.
  -c           a configuration: its database, and the settings of its tables,
               forwarder and sinks. waybill.yaml is not read unless it is named. In
               place of each sink stands a receiver inside the process.
  --sinks      configured sinks that are really delivered to. Their receivers get
               made-up notifications: it asks first.
  --type, --data   a notification of your own, for sinks that cannot take made-up
               ones: its type, and a file with its payload.

With --against the result is compared with an earlier one, as bench compare does. If a
figure is worse by more than --tolerance, and its runs do not lie so far apart that
chance may explain it, it is named and the exit code is 1.`,
		Example: `  waybill bench
  waybill bench drain --rows 300000 --database postgres://app@localhost/app
  waybill bench sweep --delay 20ms --html report.html
  waybill bench latency -c waybill.yaml --sinks events --rate 200
  waybill bench drain -c waybill.yaml --sinks mail --type order.placed --data order.json
  waybill bench --json > before.json
  waybill bench --against before.json --tolerance 20%`,
		ValidArgs: append(bench.AllScenarios(), "all"),
		Args:      cobra.ArbitraryArgs, // judged with all else
		RunE:      b.run,
	}
	f := cmd.Flags()
	f.StringVarP(&b.flags.file, "config", "c", "", "configuration file")
	f.StringVar(&b.flags.database, "database", "", "address of the database, in place of the configuration's or of a temporary SQLite file")
	f.StringSliceVar(&b.Sinks, "sinks", nil, "configured sinks that are really delivered to")
	f.StringSliceVar(&b.Receivers, "receivers", nil, "receivers inside the process: noop, kafka, http, smtp (default: one for each configured sink, or all)")
	f.StringVar(&b.Sample.Type, "type", "", "type of a notification of your own, in place of made-up ones")
	f.StringVar(&b.data, "data", "", "file with the payload of that notification; - for standard input")
	f.IntVar(&b.Rows, "rows", 0, "notifications of a backlog (default: as many as take about a second)")
	f.IntVar(&b.Runs, "runs", bench.DefaultRuns, "runs that count, after a warm-up")
	f.IntVar(&b.PayloadBytes, "payload-bytes", bench.DefaultPayloadBytes, "size of a payload")
	f.IntVar(&b.Keys, "keys", bench.DefaultKeys, "keys that the notifications are spread over")
	f.IntSliceVar(&b.Clients, "clients", bench.DefaultClients, "clients that publish at the same time, in publish")
	f.IntVar(&b.Threshold, "threshold", 0, "parallelism threshold (default: the sink's)")
	f.IntSliceVar(&b.Thresholds, "thresholds", bench.DefaultThresholds, "parallelism thresholds that sweep goes over")
	f.DurationVar(&b.Delay, "delay", 0, "time that receivers inside the process take for each delivery (default 0s, in sweep 5ms)")
	f.IntVar(&b.Rate, "rate", 0, "transactions per second (default 500 in latency, in sustain as many as possible)")
	f.DurationVar(&b.Duration, "duration", 0, "time that a run takes (default 1s in publish, 2s in latency, 20s in sustain)")
	f.IntVar(&b.Backlog, "backlog", bench.DefaultBacklog, "notifications of fault's large backlog")
	f.BoolVar(&b.yes, "yes", false, "do not ask")
	f.StringVar(&b.html, "html", "", "file to write the result to as a page with plots, which needs no network")
	f.BoolVar(&b.json, "json", false, "print the result as JSON")
	f.StringVar(&b.profile, "cpu-profile", "", "file to write a profile of the whole bench's processor time to, for go tool pprof")
	f.StringVar(&b.against.file, "against", "", "earlier result (of --json) to compare with; exit code 1 if a figure is worse")
	b.against.tolerance = defaultTolerance
	f.Var(&b.against.tolerance, "tolerance", "by how much a figure may be worse than in the earlier result")
	cmd.AddCommand(newBenchCompare(p))
	return cmd
}

type benchmark struct {
	*invocation
	bench.Config
	flags     sourceFlags
	html      string
	profile   string
	data      string
	yes, json bool
	against   against
}

func (b *benchmark) run(cmd *cobra.Command, args []string) error {
	b.Scenarios, b.Version = args, readBuild(b.name).Version
	if err := errors.Join(b.readSample(cmd), b.configure(cmd)); err != nil {
		return err
	}
	if err := errors.Join(b.Validate(), b.against.read(cmd, b.Config)); err != nil {
		return wrongUsage(cmd, err)
	}
	if agreed, err := b.agree(cmd); err != nil || !agreed {
		return err
	}
	page, err := createFile("--html", b.html)
	if err != nil {
		return wrongUsage(cmd, err)
	}
	profile, err := createFile("--cpu-profile", b.profile)
	if err != nil {
		return errors.Join(wrongUsage(cmd, err), removeFile(page))
	}
	progress := bench.NewProgress(b.stderr)
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
		return errors.Join(err, printJSON(b.stdout, result), worse)
	}
	result.Print(b.stdout)
	b.against.print(b.stdout, result.Against)
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

// createFile makes the file of a flag before anything starts, since an hour later would
// be late to hear that it cannot be made; nil where none is wanted.
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

// readSample reads the notification that the user gives. It has the version that the
// program writes, where it knows the type.
func (b *benchmark) readSample(cmd *cobra.Command) error {
	if b.data == "" && b.Sample.Type == "" {
		return nil
	}
	if b.data == "" || b.Sample.Type == "" {
		return wrongUsage(cmd, errors.New("--type and --data are of one notification: give both"))
	}
	if cmd.Flags().Changed("payload-bytes") {
		return wrongUsage(cmd, errors.New("--payload-bytes is for made-up payloads: leave it out with --data"))
	}
	s := sample{file: b.data}
	if err := s.read(cmd); err != nil {
		return wrongUsage(cmd, err)
	}
	var payload bytes.Buffer // as a publisher would write it
	if err := json.Compact(&payload, s.payload); err != nil {
		return wrongUsage(cmd, fmt.Errorf("--data: %w", err))
	}
	b.Sample.Version, b.Sample.Payload = 1, payload.Bytes()
	if b.options.Types != nil {
		info, known := b.options.Types.Lookup(b.Sample.Type)
		if !known {
			return wrongUsage(cmd, fmt.Errorf("--type: the program has no type %q", b.Sample.Type))
		}
		b.Sample.Type, b.Sample.Version = info.Name, info.Version
	}
	return nil
}

// configure reads what the user names of his own. Sinks are not built, so that their
// secrets need not be at hand, unless they are really delivered to.
func (b *benchmark) configure(cmd *cobra.Command) (err error) {
	if b.flags.file == "" {
		if b.flags.database == "" {
			return nil
		}
		if b.Database, err = config.ParseDatabase(b.flags.database); err != nil {
			return wrongUsage(cmd, fmt.Errorf("--database %w", err))
		}
		return nil
	}
	source := config.Source{File: b.flags.file, Database: b.flags.database, Environ: b.environ}
	tables, err := config.LoadTables(source)
	if err != nil {
		return err
	}
	b.Database = tables.Database
	if b.Configured, err = config.LoadDeliveries(source, b.options); err != nil {
		return err
	}
	b.Build = func() (*config.Config, error) { return config.Load(source, b.options) }
	if len(b.Sinks) > 0 {
		_, err = b.Build() // mistakes are told before anything starts
	}
	return err
}

// agree tells what will be done to things of the user's, and asks where that could
// do harm.
func (b *benchmark) agree(cmd *cobra.Command) (bool, error) {
	plan, consent := b.Plan()
	if b.flags.file == "" {
		if _, err := os.Stat(config.DefaultFile); err == nil {
			plan = append(plan, config.DefaultFile+" is not read: name it with -c to measure with it.")
		}
	}
	for _, line := range plan {
		fmt.Fprintln(b.stderr, line)
	}
	if !consent || b.yes {
		return true, nil
	}
	if b.json || !isTerminal(cmd.InOrStdin()) {
		return false, wrongUsage(cmd, errors.New("there is no terminal to ask on: read the lines above, then use --yes"))
	}
	fmt.Fprint(b.stderr, "Go on? [y/N] ")
	yes, err := saysYes(cmd.Context(), cmd.InOrStdin())
	if err == nil && !yes {
		fmt.Fprintln(b.stderr, "nothing is done")
	}
	return yes, err
}
