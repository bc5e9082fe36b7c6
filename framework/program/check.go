package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/sinks"
)

func newCheck(p *command.Invocation) *cobra.Command {
	c := &check{Invocation: p}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Find mistakes in a configuration and check whether its sinks can be reached",
		Long: `Report every mistake for which waybill forward would refuse a configuration, with line
numbers; the exit code is then 2. If there are none, check whether each sink's
destination would accept a delivery now; the exit code is 1 if one would not. The
table also shows the routes to each sink.

Nothing is delivered and the database is not opened. The check connects to the host of
an http sink, sends a NOOP to a mail server, and asks a Kafka cluster for the topic,
which creates the topic if the brokers create topics on request. It starts the program
of a process sink and ends it, and tests whether the file of a jsonlines sink can be
written. Sinks without a health check are not opened. --offline checks no sink.`,
		Example: `  waybill config check -c waybill.yaml
  waybill config check --offline --json`,
		Args: command.NoArguments,
		RunE: c.run,
	}
	c.flags.Add(cmd)
	cmd.Flags().DurationVar(&c.timeout, "timeout", 5*time.Second, "how long the check of a sink may take")
	cmd.Flags().BoolVar(&c.offline, "offline", false, "check no sink")
	cmd.Flags().BoolVar(&c.json, "json", false, "print the result as JSON, including mistakes")
	return cmd
}

type check struct {
	*command.Invocation
	flags   command.SourceFlags
	timeout time.Duration
	offline bool
	json    bool
}

// health is the result of one sink's check.
type health string

const (
	healthy    health = "healthy"
	notHealthy health = "not healthy"
	notChecked health = "not checked" // the sink has no check, or --offline is set
	absent     health = "not supplied by this program"
)

// checkView is the output of --json.
type checkView struct {
	Mistakes []mistakeView `json:"mistakes"`
	Sinks    []sinkHealth  `json:"sinks"`
}

type mistakeView struct {
	Where string `json:"where,omitempty"`
	Line  int    `json:"line,omitempty"`
	Text  string `json:"text"`
}

type sinkHealth struct {
	Sink   string   `json:"sink"`
	Kind   string   `json:"kind"`
	Health health   `json:"health"`
	Error  string   `json:"error,omitempty"`
	Routes []string `json:"routes"`
}

func (c *check) run(cmd *cobra.Command, _ []string) error {
	if c.timeout <= 0 {
		return command.WrongUsage(cmd, fmt.Errorf("--timeout is %s: use more than 0", c.timeout))
	}
	source, err := c.FileSource(cmd, c.flags)
	if err != nil {
		return err
	}
	loaded, err := config.Load(source, c.Options)
	if err != nil {
		return errors.Join(c.printMistakes(err), err)
	}
	found := c.askAll(cmd.Context(), loaded)
	if err := cmd.Context().Err(); err != nil {
		return err
	}
	if c.json {
		err = command.PrintJSON(c.Stdout, checkView{Mistakes: []mistakeView{}, Sinks: found})
	} else {
		printHealth(c.Stdout, found)
	}
	return errors.Join(err, healthError(found))
}

// printMistakes puts mistakes into the output of --json.
func (c *check) printMistakes(err error) error {
	view, ok := viewOfMistakes(err)
	if !c.json || !ok {
		return nil
	}
	return command.PrintJSON(c.Stdout, view)
}

// viewOfMistakes returns the mistakes of a configuration; false for another error.
func viewOfMistakes(err error) (view checkView, ok bool) {
	var mistakes *config.Error
	if !errors.As(err, &mistakes) {
		return view, false
	}
	view.Sinks = []sinkHealth{}
	for _, m := range mistakes.Mistakes {
		view.Mistakes = append(view.Mistakes, mistakeView(m))
	}
	return view, true
}

// askAll checks all sinks in parallel.
func (c *check) askAll(ctx context.Context, loaded *config.Config) []sinkHealth {
	names := slices.Sorted(maps.Keys(loaded.Sinks))
	found := make([]sinkHealth, len(names))
	var checks sync.WaitGroup
	for i, name := range names {
		sink := loaded.Sinks[name]
		found[i] = sinkHealth{Sink: name, Kind: sink.Kind, Health: notChecked, Routes: loaded.RoutesTo(name)}
		if _, is := sink.Sink.Sink.(sinks.Absent); is {
			found[i].Health = absent
			continue
		}
		checker, ok := sink.Sink.Sink.(sinks.HealthChecker)
		if !ok || c.offline {
			continue
		}
		checks.Go(func() {
			found[i].Health = healthy
			if err := doctor.CheckHealth(ctx, checker, c.timeout); err != nil {
				found[i].Health, found[i].Error = notHealthy, err.Error()
			}
		})
	}
	checks.Wait()
	return found
}

func healthError(found []sinkHealth) error {
	var ill []string
	for _, f := range found {
		if f.Health == notHealthy {
			ill = append(ill, f.Sink)
		}
	}
	if len(ill) == 0 {
		return nil
	}
	return fmt.Errorf("not healthy: %s", strings.Join(ill, ", "))
}

func printHealth(w io.Writer, found []sinkHealth) {
	t := command.NewTable(w, "sink", "kind", "health", "routes", "error")
	for _, f := range found {
		t.AppendRow(table.Row{f.Sink, f.Kind, f.Health, command.OrDash(strings.Join(f.Routes, ", ")), command.OrDash(command.FirstLine(f.Error, 300))})
	}
	t.Render()
}
