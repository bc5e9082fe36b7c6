package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// measurement is one run of waybill bench, and the figures that it gives.
type measurement struct {
	name    string // of files
	args    []string
	figures []figure
}

// figure is a metric of a result.
type figure struct{ name, scenario, of, metric string }

// measurements give the main figures. The numbers of rows are fixed, so that both
// programs do the same.
func measurements() []measurement {
	return []measurement{
		{"publish", []string{"publish", "--clients", "1"}, []figure{{"publish transaction", "publish", "1 client, with 1 notification", "transactions"}}},
		{"drain-nowhere", []string{"drain", "--receivers", "noop", "--rows", "100000"}, []figure{{"drain to nowhere", "drain", "noop", "throughput"}}},
		{"drain-http", []string{"drain", "--receivers", "http", "--rows", "10000"}, []figure{{"drain to HTTP", "drain", "http", "throughput"}}},
		{"drain-kafka", []string{"drain", "--receivers", "kafka", "--rows", "50000"}, []figure{{"drain to Kafka", "drain", "kafka", "throughput"}}},
		{"latency", []string{"latency", "--receivers", "noop", "--rate", "200", "--duration", "3s"}, []figure{{"latency p50", "latency", "noop", "p50"}, {"latency p99", "latency", "noop", "p99"}}},
	}
}

// result is what the guard reads of waybill bench --json.
type result struct {
	Scenarios []struct {
		Name  string
		Cases []struct {
			Name    string
			Metrics []struct {
				Name, Better string
				Median       float64
			}
		}
	}
}

// find returns a figure, and whether more of it is better.
func (r *result) find(f figure) (value float64, more bool, err error) {
	for _, s := range r.Scenarios {
		for _, c := range s.Cases {
			for _, m := range c.Metrics {
				if s.Name == f.scenario && c.Name == f.of && m.Name == f.metric && m.Median > 0 {
					return m.Median, m.Better == "higher", nil
				}
			}
		}
	}
	return 0, false, fmt.Errorf("the result has no %s of %s, %s", f.metric, f.scenario, f.of)
}

// pair is a figure of two runs that followed each other.
type pair struct{ before, now, speed float64 }

// pairOf has the speed of now as a multiple of before: below 1 it is worse, whether more
// or less of the figure is better.
func pairOf(f figure, before, now *result) (pair, error) {
	x, more, err := before.find(f)
	if err != nil {
		return pair{}, fmt.Errorf("before: %w", err)
	}
	y, _, err := now.find(f)
	if err != nil {
		return pair{}, fmt.Errorf("now: %w", err)
	}
	if more {
		return pair{x, y, y / x}, nil
	}
	return pair{x, y, x / y}, nil
}

// pairs are those of one figure.
type pairs []pair

// median is that of what is taken from each pair.
func (p pairs) median(take func(pair) float64) float64 {
	values := make([]float64, len(p))
	for i, one := range p {
		values[i] = take(one)
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

func (p pairs) speed() float64 { return p.median(func(one pair) float64 { return one.speed }) }

// worse reports whether the figure is worse by more than a share.
func (p pairs) worse(tolerance float64) bool { return p.speed() < 1-tolerance }

func (p pairs) String() string {
	slowest := slices.MinFunc(p, func(a, b pair) int { return cmp.Compare(a.speed, b.speed) }).speed
	fastest := slices.MaxFunc(p, func(a, b pair) int { return cmp.Compare(a.speed, b.speed) }).speed
	return fmt.Sprintf("%10.4g before %10.4g now   speed %.2f (%.2f–%.2f), pairs: %d", p.median(func(one pair) float64 { return one.before }),
		p.median(func(one pair) float64 { return one.now }), p.speed(), slowest, fastest, len(p))
}

// guard compares two programs.
type guard struct {
	options
	programs
	measurements []measurement
	out          io.Writer
	found        map[string]pairs // by figure
}

// errWorse says that a figure has become worse.
var errWorse = errors.New("worse than before")

func (g *guard) run(ctx context.Context) error {
	g.found = make(map[string]pairs)
	if err := g.measure(ctx, g.measurements); err != nil {
		return err
	}
	// Chance makes one of six figures look worse now and then.
	if suspects := g.suspects(); len(suspects) > 0 {
		fmt.Fprintln(g.out, "Once more, for what seems worse:")
		if err := g.measure(ctx, suspects); err != nil {
			return err
		}
	}
	var worse []string
	for _, m := range g.measurements {
		for _, f := range m.figures {
			fmt.Fprintf(g.out, "%-20s %s\n", f.name, g.found[f.name])
			if g.found[f.name].worse(g.tolerance) {
				worse = append(worse, f.name)
			}
		}
	}
	if len(worse) == 0 {
		return nil
	}
	return errors.Join(fmt.Errorf("%w by more than %.3g %%: %s", errWorse, 100*g.tolerance, strings.Join(worse, ", ")), g.profile(ctx))
}

// suspects are the measurements with a figure that is worse.
func (g *guard) suspects() []measurement {
	return slices.DeleteFunc(slices.Clone(g.measurements), func(m measurement) bool {
		return !slices.ContainsFunc(m.figures, func(f figure) bool { return g.found[f.name].worse(g.tolerance) })
	})
}

// measure makes the pairs of some measurements, in turns; which program is the first of a
// pair changes each time.
func (g *guard) measure(ctx context.Context, list []measurement) error {
	for n := range g.pairs {
		for _, m := range list {
			if err := g.measurePair(ctx, m, n); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
		}
		fmt.Fprintf(g.out, "pair %d of %d\n", n+1, g.pairs)
	}
	return nil
}

// measurePair makes pair n.
func (g *guard) measurePair(ctx context.Context, m measurement, n int) error {
	var results [2]*result // before, now
	for i := range results {
		which := (i + n) % 2
		var err error
		if results[which], err = g.bench(ctx, []string{g.before, g.now}[which], m.args); err != nil {
			return err
		}
	}
	for _, f := range m.figures {
		p, err := pairOf(f, results[0], results[1])
		if err != nil {
			return err
		}
		g.found[f.name] = append(g.found[f.name], p)
	}
	return nil
}

// bench runs waybill bench once. Lost notifications are its error.
func (g *guard) bench(ctx context.Context, program string, args []string) (*result, error) {
	text, err := output(ctx, "", program, append(append([]string{"bench"}, args...), "--runs", "1", "--json", "--database", g.database)...)
	if err != nil {
		return nil, err
	}
	r := new(result)
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(program), err)
	}
	return r, nil
}

// profile keeps profiles of what is worse: of this tree, and of the other one if it can
// make them.
func (g *guard) profile(ctx context.Context) error {
	if err := os.MkdirAll(g.profiles, 0o755); err != nil {
		return err
	}
	for _, m := range g.suspects() {
		for _, program := range []string{g.before, g.now} {
			help, err := output(ctx, "", program, "bench", "--help")
			if err != nil {
				return err
			}
			if !strings.Contains(help, "--cpu-profile") {
				continue
			}
			file := filepath.Join(g.profiles, fmt.Sprintf("guard-%s-%s.prof", m.name, filepath.Base(program)))
			if _, err := g.bench(ctx, program, append(slices.Clone(m.args), "--cpu-profile", file)); err != nil {
				return err
			}
			fmt.Fprintln(g.out, "profile:", file)
		}
	}
	return nil
}
