// Peers compares Waybill with its peers on one PostgreSQL, and writes what it found
// as JSON and into the page of benchmarks.
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
	"strings"
	"syscall"
	"time"

	"github.com/waybill-go/waybill/benchmarks/child"
	"github.com/waybill-go/waybill/benchmarks/database"
	"github.com/waybill-go/waybill/benchmarks/machine"
	"github.com/waybill-go/waybill/benchmarks/report"
	"github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/benchmarks/scenario"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

// options are what flags say.
type options struct {
	sizes    scenario.Sizes
	runs     int
	warmUp   bool
	only     *regexp.Regexp
	who      *regexp.Regexp
	database string
	json     string
	page     string
	redraw   bool
	others   float64 // share of the machine
	smoke    bool
}

func parse(args []string) (o options, err error) {
	s := scenario.DefaultSizes()
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.IntVar(&o.runs, "runs", 3, "runs of each contender, in turns; the median counts")
	flags.BoolVar(&o.warmUp, "warm-up", true, "have each contender run briefly before, which does not count")
	only := flags.String("only", "", "regular expression of the scenarios' names; others stay as they are in the file that --json names")
	who := flags.String("who", "", "regular expression of the contenders' names; default all")
	flags.BoolVar(&o.smoke, "smoke", false, "tiny sizes, one run, fsync off: does everything work?")
	flags.StringVar(&o.database, "database", "", "URL of a PostgreSQL on which databases may be created; default: one is started")
	flags.StringVar(&o.json, "json", "", "file for all runs as JSON")
	flags.StringVar(&o.page, "page", "", "page whose generated part is replaced; its plots go beside it")
	flags.BoolVar(&o.redraw, "redraw", false, "measure nothing: write the page from the file that --json names")
	flags.Float64Var(&o.others, "others", 0.1, "share of the machine that others may have in a run that counts")
	flags.IntVar(&s.Backlog, "backlog", s.Backlog, "orders that are drained nowhere and to Kafka")
	flags.IntVar(&s.SlowBacklog, "slow-backlog", s.SlowBacklog, "orders that are drained to HTTP and to the Kafka that is 2 ms away")
	flags.DurationVar(&s.Limit, "limit", s.Limit, "time that a drain may take; what is left then does not count")
	flags.IntVar(&s.InFlight, "in-flight", s.InFlight, "deliveries in flight nowhere and to Kafka")
	flags.IntVar(&s.HTTP, "http-in-flight", s.HTTP, "deliveries in flight to HTTP")
	flags.DurationVar(&s.Publishing, "publishing", s.Publishing, "time for which transactions are made")
	flags.IntVar(&s.Fewest, "fewest", s.Fewest, "transactions of a latency run at least, whatever time that takes")
	flags.IntVar(&s.Clients, "clients", s.Clients, "clients that make them")
	flags.IntVar(&s.Through, "through", s.Through, "notifications whose dead tuples are counted")
	flags.IntVar(&s.History, "history", s.History, "rows of the large backlog, and of the long history")
	flags.IntVar(&s.Fan, "fan", s.Fan, "orders that go to many sinks")
	flags.IntVar(&s.Staged, "staged", s.Staged, "records of the second stage's topic; its ten partners get an eighth of them")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.smoke {
		s, o.runs, o.warmUp = scenario.SmokeSizes(), 1, false
	}
	o.sizes = s
	var errOnly, errWho error
	o.only, errOnly = regexp.Compile(*only)
	o.who, errWho = regexp.Compile(*who)
	return o, errors.Join(errOnly, errWho, o.check(flags.Args(), *who))
}

func (o options) check(rest []string, who string) error {
	var problems []error
	require := func(ok bool, text string) {
		if !ok {
			problems = append(problems, errors.New(text))
		}
	}
	s := o.sizes
	require(len(rest) == 0, fmt.Sprintf("arguments that are not flags: %q", rest))
	require(o.runs >= 1, "--runs: use 1 or more")
	require(min(s.Backlog, s.SlowBacklog, s.InFlight, s.HTTP, s.Fewest, s.Clients, s.Fan) >= 1 && s.Through >= 5 && s.History >= 2 && s.Staged >= 8, "sizes: use 1 or more, 2 for --history, 5 for --through and 8 for --staged")
	require(min(s.Limit, s.Publishing) > 0, "--limit, --publishing: use more than 0s")
	require(o.others > 0, "--others: use more than 0")
	require(who == "" || o.json == "" && o.page == "", "--who leaves contenders out: without --json and --page")
	require(!o.redraw || o.json != "" && o.page != "", "--redraw needs --json and --page")
	return errors.Join(problems...)
}

func main() {
	child.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetOutput(io.Discard) // sarama and others log there; what matters comes back as an error
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

// measureAndKeep writes the file, also of the scenarios that were through when one failed
// or someone stopped the command. Those that are not measured stay in it.
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
			if err := r.Keep(earlier, scenario.Names()); err != nil {
				return nil, errors.Join(failed, fmt.Errorf("%s: %w", o.json, err))
			}
		}
	}
	return r, errors.Join(failed, os.MkdirAll(filepath.Dir(o.json), 0o755), r.Write(o.json))
}

// measure returns what it found until it failed.
func measure(ctx context.Context, o options) (r *result.Result, err error) {
	r = new(result.Result)
	server, err := database.Start(ctx, o.database, !o.smoke)
	if err != nil {
		return r, err
	}
	defer func() {
		if closed := server.Close(); closed != nil {
			err = errors.Join(err, fmt.Errorf("put away what was started: %w", closed))
		}
	}()
	if r.Machine, err = result.InspectMachine(ctx, server); err != nil {
		return r, err
	}
	began, revision, warmUp := time.Now(), result.Revision(ctx), scenario.All(o.sizes.WarmUp())
	for i, s := range scenario.All(o.sizes) {
		if !o.only.MatchString(s.Name) {
			continue
		}
		if s.Lacks != "" {
			fmt.Printf("%-20s is left out: %s\n", s.Name, s.Lacks)
			continue
		}
		runs, err := take(ctx, server, s, warmUp[i], o)
		if err != nil {
			return r, fmt.Errorf("%s: %w", s.Name, err)
		}
		runs.Revision = revision
		r.Scenarios = append(r.Scenarios, runs)
		fmt.Printf("%-20s took %s, all so far %s\n", s.Name, time.Since(runs.Begun).Round(time.Second), time.Since(began).Round(time.Second))
	}
	if r.Scenarios == nil {
		return r, fmt.Errorf("--only: no scenario is called like %q; there are %s", o.only, strings.Join(scenario.Names(), ", "))
	}
	return r, nil
}

// take has the contenders of a scenario run in turns, after a run of each to warm up.
func take(ctx context.Context, server *database.Server, s, warmUp scenario.Scenario, o options) (result.Scenario, error) {
	r := result.Scenario{Name: s.Name, Title: s.Title, About: s.About, Metrics: s.Metrics, Begun: time.Now()}
	r.Load[0] = machine.Load()
	first, turns := 0, o.runs
	if o.warmUp && !s.Once {
		first = -1
	}
	if s.Once {
		turns = 1
	}
	for turn := first; turn < turns; turn++ {
		now := s
		if turn < 0 {
			now = warmUp
		}
		for _, c := range now.Contenders {
			if !o.who.MatchString(c.Name) {
				continue
			}
			sample, err := c.Run(ctx, server)
			if errors.Is(err, mysqltest.ErrNoServer) {
				continue // it is left out
			}
			if err != nil {
				return r, fmt.Errorf("%s: %w", c.Name, err)
			}
			sample.Spoiled = sample.Spoilt(runtime.GOMAXPROCS(0), o.others)
			printSample(s, c, turn, sample)
			if turn >= 0 {
				r.Add(c, sample)
			}
		}
	}
	r.Load[1] = machine.Load()
	return r, nil
}

// printSample prints the result of one run.
func printSample(s scenario.Scenario, c scenario.Contender, turn int, sample scenario.Sample) {
	which := fmt.Sprintf("run %d", turn+1)
	if turn < 0 {
		which = "warm-up"
	}
	line := fmt.Sprintf("%-20s %-8s %-42s", s.Name, which, c.Name)
	for _, m := range s.Metrics {
		line += fmt.Sprintf("  %s %.*f", m.Key, m.Decimals, sample.Metrics[m.Key])
	}
	if sample.Lost+sample.Repeats+sample.Unsettled+sample.Swapped > 0 {
		line += fmt.Sprintf("  lost %d repeats %d unsettled %d swapped %d", sample.Lost, sample.Repeats, sample.Unsettled, sample.Swapped)
	}
	if sample.Spoiled != "" {
		line += "  SPOILED: " + sample.Spoiled
	}
	fmt.Println(line)
}

// losses is an error if a contender lost anything: then the figures mean nothing. Of one that is known to lose
// orders the page says why.
func losses(r *result.Result) error {
	var problems []error
	for _, s := range r.Scenarios {
		for _, c := range s.Contenders {
			if lost := c.Total().Lost; lost > 0 && c.Lossy == "" {
				problems = append(problems, fmt.Errorf("%s: %s lost %d orders", s.Name, c.Name, lost))
			}
		}
	}
	return errors.Join(problems...)
}
