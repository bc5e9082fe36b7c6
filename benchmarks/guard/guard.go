package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/benchmarks/result"
)

// measurement is one run of waybill bench, and the figures that are taken from it.
type measurement struct {
	args    []string
	figures []figure
}

// figure is a metric of a case.
type figure struct{ name, scenario, of, metric string }

// measurements returns the measurements of the main figures. The numbers of rows are fixed, so that
// both programs do the same work.
func measurements() []measurement {
	drain := func(receiver, rows, name string) measurement {
		return measurement{[]string{"drain", "--sinks", receiver, "--rows", rows}, []figure{{name, "drain", receiver, "throughput"}}}
	}
	return []measurement{
		{[]string{"publish"}, []figure{{"publish transaction", "publish", "1 client, with 1 notification", "transactions"}}},
		drain("noop", "100000", "drain to nowhere"), drain("http", "10000", "drain to HTTP"), drain("kafka", "50000", "drain to Kafka"),
		{[]string{"latency", "--sinks", "noop", "--duration", "3s"}, []figure{{"latency p50", "latency", "noop", "p50"}, {"latency p99", "latency", "noop", "p99"}}},
		// Publishing at full speed beside a forwarder.
		{[]string{"sustain", "--sinks", "noop", "--duration", "3s"}, []figure{{"publishing beside a forwarder", "sustain", "to noop", "published"}, {"latency p99 beside it", "sustain", "to noop", "p99"}}},
	}
}

// guard compares two programs.
type guard struct {
	options
	programs
	measurements []measurement
	out          io.Writer
	// results are of the earlier revision and of this tree: a case for each figure, with its runs.
	results [2]result.Result
}

// errWorse means that a figure is worse than before.
var errWorse = errors.New("worse than before")

func (g *guard) run(ctx context.Context) error {
	for i := range g.results {
		g.results[i] = result.Result{OK: true, Scenarios: []result.Scenario{{Name: "guard"}}}
	}
	if err := g.measure(ctx, g.measurements); err != nil {
		return err
	}
	// With eight figures, one of them sometimes looks worse by chance.
	if suspects := g.suspects(); len(suspects) > 0 {
		fmt.Fprintln(g.out, "Measure the figures that seem worse again:")
		if err := g.measure(ctx, suspects); err != nil {
			return err
		}
	}
	for _, row := range g.compare().Rows {
		fmt.Fprintf(g.out, "%s (%.2f–%.2f)\n", row, row.Low, row.High)
	}
	worse := g.worse()
	if len(worse) == 0 {
		return nil
	}
	return fmt.Errorf("%w by more than %.3g %%: %s", errWorse, 100*g.tolerance, strings.Join(worse, ", "))
}

func (g *guard) compare() result.Comparison { return result.Compare(&g.results[0], &g.results[1]) }

// worse returns the names of the figures that are worse.
func (g *guard) worse() (names []string) {
	rows, _ := g.compare().Worse(g.tolerance)
	for _, row := range rows {
		names = append(names, row.Case)
	}
	return names
}

// suspects returns the measurements with a figure that is worse.
func (g *guard) suspects() []measurement {
	worse := g.worse()
	return slices.DeleteFunc(slices.Clone(g.measurements), func(m measurement) bool {
		return !slices.ContainsFunc(m.figures, func(f figure) bool { return slices.Contains(worse, f.name) })
	})
}

// measure measures g.pairs pairs of each measurement. The programs take turns at being the first of a
// pair.
func (g *guard) measure(ctx context.Context, list []measurement) error {
	for n := range g.pairs {
		for _, m := range list {
			for i := range g.results {
				which := (i + n) % 2
				if err := g.bench(ctx, which, m); err != nil {
					return fmt.Errorf("%s: %w", strings.Join(m.args, " "), err)
				}
			}
		}
		fmt.Fprintf(g.out, "pair %d of %d\n", n+1, g.pairs)
	}
	return nil
}

// bench runs waybill bench of one program once, and adds its figures to the results. It returns an error
// if notifications were lost.
func (g *guard) bench(ctx context.Context, which int, m measurement) error {
	program := []string{g.before, g.now}[which]
	help, err := output(ctx, "", program, "bench", "--help")
	if err != nil {
		return err
	}
	args := slices.Concat([]string{"bench"}, m.args, []string{"--runs", "1", "--json", "--database", g.database})
	if i := slices.Index(args, "--sinks"); i >= 0 && strings.Contains(help, "--receivers") {
		args[i] = "--receivers" // as earlier revisions name it
	}
	text, err := output(ctx, "", program, args...)
	if err != nil {
		return err
	}
	r := new(result.Result)
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(program), err)
	}
	for _, f := range m.figures {
		metric := find(r, f)
		if metric == nil || metric.Median <= 0 {
			return fmt.Errorf("the result of %s has no %s of %s, %s", filepath.Base(program), f.metric, f.scenario, f.of)
		}
		cases := &g.results[which].Scenarios[0].Cases
		i := slices.IndexFunc(*cases, func(c result.Case) bool { return c.Name == f.name })
		if i < 0 {
			i, *cases = len(*cases), append(*cases, result.Case{Name: f.name})
		}
		(*cases)[i].Add(metric.Of(metric.Median))
	}
	return nil
}

func find(r *result.Result, f figure) *result.Metric {
	for _, s := range r.Scenarios {
		for _, c := range s.Cases {
			if s.Name == f.scenario && c.Name == f.of {
				return c.Find(f.metric)
			}
		}
	}
	return nil
}
