// Peers compares Waybill with its peers on one PostgreSQL. It writes the results as JSON and into
// docs/benchmarks.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/waybill-go/waybill/benchmarks/peers/database"
	"github.com/waybill-go/waybill/benchmarks/peers/report"
	"github.com/waybill-go/waybill/benchmarks/peers/scenario"
	"github.com/waybill-go/waybill/benchmarks/result"
)

// options are the values of the flags.
type options struct {
	sizes  scenario.Sizes
	runs   int
	only   *regexp.Regexp
	json   string
	page   string
	redraw bool
	others float64 // share of the machine that other processes may use
	smoke  bool
}

func parse(args []string) (o options, err error) {
	o.sizes = scenario.DefaultSizes()
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.IntVar(&o.runs, "runs", 3, "runs of each contender, in turns; the page shows their median")
	only := flags.String("only", "", "regular expression for the names of scenarios to measure; the --json file keeps its results of the others")
	flags.BoolVar(&o.smoke, "smoke", false, "tiny sizes, one run, fsync off: checks that everything works")
	flags.StringVar(&o.json, "json", "", "JSON file for the results of all runs")
	flags.StringVar(&o.page, "page", "", "page whose generated parts are replaced; its plots go into the folder of the same name")
	flags.BoolVar(&o.redraw, "redraw", false, "measure nothing, and write the page from the --json file")
	flags.Float64Var(&o.others, "others", 0.1, "share of the machine that other processes may use during a valid run")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.smoke {
		o.sizes, o.runs = scenario.SmokeSizes(), 1
	}
	var problems []error
	require := func(ok bool, text string) {
		if !ok {
			problems = append(problems, errors.New(text))
		}
	}
	if o.only, err = regexp.Compile(*only); err != nil {
		problems = append(problems, err)
	}
	require(flags.NArg() == 0, fmt.Sprintf("arguments that are not flags: %q", flags.Args()))
	require(o.runs >= 1, "--runs: use 1 or more")
	require(o.others > 0, "--others: use more than 0")
	require(!o.redraw || o.json != "" && o.page != "", "--redraw needs --json and --page")
	return o, errors.Join(problems...)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetOutput(io.Discard) // sarama and others log there; errors are returned
	if err := peers(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "peers:", err)
		stop()
		os.Exit(1)
	}
}

func peers(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	var r *result.Result
	if o.redraw {
		r, err = result.Read(o.json)
	} else {
		r, err = measureAndKeep(ctx, o)
	}
	if err != nil {
		return err
	}
	if o.page != "" {
		if err := report.Write(r, o.page); err != nil {
			return err
		}
	}
	return losses(r)
}

// measureAndKeep measures and writes the --json file. If a scenario fails or the command is stopped,
// it writes the scenarios that are finished. The file keeps its results of other scenarios.
func measureAndKeep(ctx context.Context, o options) (*result.Result, error) {
	r, failed := measure(ctx, o)
	if o.json == "" || len(r.Scenarios) == 0 {
		return r, failed
	}
	if len(r.Scenarios) < len(scenario.Names()) {
		switch earlier, err := result.Read(o.json); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, errors.Join(failed, err)
		default:
			if err := keep(r, earlier, scenario.Names()); err != nil {
				return nil, errors.Join(failed, fmt.Errorf("%s: %w", o.json, err))
			}
		}
	}
	return r, errors.Join(failed, os.MkdirAll(filepath.Dir(o.json), 0o755), r.Write(o.json))
}

// measure returns the results, also with an error: those of the scenarios that are finished.
func measure(ctx context.Context, o options) (r *result.Result, err error) {
	r = &result.Result{Format: result.Format, OK: true, Started: time.Now().UTC(), Settings: result.Settings{Runs: o.runs}, Warnings: []string{}}
	server, err := database.Start(ctx, !o.smoke)
	if err != nil {
		return r, err
	}
	defer func() {
		if closed := server.Close(); closed != nil {
			err = errors.Join(err, fmt.Errorf("stop the server: %w", closed))
		}
	}()
	r.Machine, r.Server.Kind = inspect(ctx), "PostgreSQL"
	if r.Server.Version, r.Server.Settings, err = server.Facts(ctx); err != nil {
		return r, err
	}
	commit, warmUp := revision(ctx), scenario.All(o.sizes.WarmUp())
	for i, s := range scenario.All(o.sizes) {
		if !o.only.MatchString(s.Name) {
			continue
		}
		if s.Lacks != "" {
			fmt.Printf("%-20s skipped: %s\n", s.Name, s.Lacks)
			continue
		}
		measured, err := take(ctx, server, s, warmUp[i], o)
		if err != nil {
			return r, fmt.Errorf("%s: %w", s.Name, err)
		}
		measured.Revision = commit
		r.Scenarios = append(r.Scenarios, measured)
		fmt.Printf("%-20s took %s, total so far %s\n", s.Name, time.Since(measured.Begun).Round(time.Second), time.Since(r.Started).Round(time.Second))
	}
	if r.Scenarios == nil {
		return r, fmt.Errorf("--only: no scenario matches %q; the scenarios are %s", o.only, strings.Join(scenario.Names(), ", "))
	}
	r.Seconds = time.Since(r.Started).Seconds()
	return r, nil
}

// take runs the contenders of a scenario in turns, after a warm-up run of each.
func take(ctx context.Context, server *database.Server, s, warmUp scenario.Scenario, o options) (result.Scenario, error) {
	r := result.Scenario{Name: s.Name, Title: s.Title, About: s.About, Begun: time.Now().UTC()}
	r.Load[0] = result.Load(ctx)
	first := 0
	if !o.smoke {
		first = -1
	}
	for turn := first; turn < o.runs; turn++ {
		now := s
		if turn < 0 {
			now = warmUp
		}
		for _, c := range now.Contenders {
			sample, err := c.Run(ctx, server)
			if err != nil {
				return r, fmt.Errorf("%s: %w", c.Name, err)
			}
			spoiled := sample.Spoilt(runtime.GOMAXPROCS(0), o.others)
			printSample(s, c, turn, sample, spoiled)
			if turn >= 0 {
				add(&r, s, c, sample, turn, spoiled)
			}
		}
	}
	r.Load[1] = result.Load(ctx)
	addShares(&r, s.Contenders)
	return r, nil
}

// addShares adds to the cases, which are those of the contenders, their rates as shares of those without a
// relay.
func addShares(r *result.Scenario, contenders []scenario.Contender) {
	for i, c := range contenders {
		if alone := slices.IndexFunc(r.Cases, func(other result.Case) bool { return other.Name == c.Alone }); alone >= 0 {
			r.Cases[i].AddShare(scenario.OfNoRelay, "published", &r.Cases[alone])
		}
	}
}

// add adds a run of a contender. The first run adds the contender too. What a spoiled run lost counts,
// and its figures do not.
func add(r *result.Scenario, s scenario.Scenario, of scenario.Contender, sample scenario.Sample, turn int, spoiled string) {
	i := slices.IndexFunc(r.Cases, func(c result.Case) bool { return c.Name == of.Name })
	if i < 0 {
		i, r.Cases = len(r.Cases), append(r.Cases, result.Case{Name: of.Name, Configuration: of.Configuration, Lossy: of.Lossy})
	}
	c := &r.Cases[i]
	c.AddChecks(sample.Check)
	if spoiled != "" {
		c.Spoiled = append(c.Spoiled, fmt.Sprintf("run %d: %s", turn+1, spoiled))
		return
	}
	c.Unfinished = c.Unfinished || !sample.Complete
	for _, q := range s.Metrics {
		if value, some := sample.Metrics[q.Name]; some {
			c.Add(q.Of(value))
		}
	}
}

// printSample prints the result of one run.
func printSample(s scenario.Scenario, c scenario.Contender, turn int, sample scenario.Sample, spoiled string) {
	which := fmt.Sprintf("run %d", turn+1)
	if turn < 0 {
		which = "warm-up"
	}
	line := fmt.Sprintf("%-20s %-8s %-42s", s.Name, which, c.Name)
	for _, q := range s.Metrics {
		if value, some := sample.Metrics[q.Name]; some {
			line += fmt.Sprintf("  %s %s", q.Name, result.Number(value))
		}
	}
	if c := sample.Check; c.Lost+c.Repeated+c.Unsettled+c.OutOfOrder > 0 {
		line += fmt.Sprintf("  lost %d repeated %d unsettled %d out of order %d", c.Lost, c.Repeated, c.Unsettled, c.OutOfOrder)
	}
	if spoiled != "" {
		line += "  SPOILED: " + spoiled
	}
	fmt.Println(line)
}

// losses returns an error if a contender lost orders, because its figures are then not valid. It
// accepts contenders that are known to lose orders; the page gives the reason.
func losses(r *result.Result) error {
	var problems []error
	for _, s := range r.Scenarios {
		for _, c := range s.Cases {
			for _, check := range c.Checks {
				if check.Lost > 0 && c.Lossy == "" {
					problems = append(problems, fmt.Errorf("%s: %s lost %d orders", s.Name, c.Name, check.Lost))
				}
			}
		}
	}
	return errors.Join(problems...)
}
