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

// measurement is one run of waybill bench, and the figures that are taken from it.
type measurement struct {
	name    string // for files
	args    []string
	figures []figure
}

// figure is a metric of a result.
type figure struct{ name, scenario, of, metric string }

// measurements returns the measurements of the main figures. The numbers of rows are fixed, so that
// both programs do the same work.
func measurements() []measurement {
	return []measurement{
		{"publish", []string{"publish", "--clients", "1"}, []figure{{"publish transaction", "publish", "1 client, with 1 notification", "transactions"}}},
		{"drain-nowhere", []string{"drain", "--receivers", "noop", "--rows", "100000"}, []figure{{"drain to nowhere", "drain", "noop", "throughput"}}},
		{"drain-http", []string{"drain", "--receivers", "http", "--rows", "10000"}, []figure{{"drain to HTTP", "drain", "http", "throughput"}}},
		{"drain-kafka", []string{"drain", "--receivers", "kafka", "--rows", "50000"}, []figure{{"drain to Kafka", "drain", "kafka", "throughput"}}},
		{"latency", []string{"latency", "--receivers", "noop", "--rate", "200", "--duration", "3s"}, []figure{{"latency p50", "latency", "noop", "p50"}, {"latency p99", "latency", "noop", "p99"}}},
	}
}

// result is the part of the output of waybill bench --json that the guard reads.
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

// find returns the value of a figure, and whether higher values are better.
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

// pair is a figure of two consecutive runs: of the earlier revision and of this tree.
type pair struct{ before, now, speed float64 }

// pairOf returns a pair. Its speed is below 1 if now is worse than before, both for figures where more
// is better and for those where less is better.
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

// pairs are the pairs of one figure.
type pairs []pair

// median returns the median of the values that take returns for the pairs.
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

// errWorse means that a figure is worse than before.
var errWorse = errors.New("worse than before")

func (g *guard) run(ctx context.Context) error {
	g.found = make(map[string]pairs)
	if err := g.measure(ctx, g.measurements); err != nil {
		return err
	}
	// With six figures, one of them sometimes looks worse by chance.
	if suspects := g.suspects(); len(suspects) > 0 {
		fmt.Fprintln(g.out, "Measure the figures that seem worse again:")
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

// suspects returns the measurements with a figure that is worse.
func (g *guard) suspects() []measurement {
	return slices.DeleteFunc(slices.Clone(g.measurements), func(m measurement) bool {
		return !slices.ContainsFunc(m.figures, func(f figure) bool { return g.found[f.name].worse(g.tolerance) })
	})
}

// measure measures g.pairs pairs of each measurement. The programs take turns at being the first of a
// pair.
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

// measurePair measures pair n.
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

// bench runs waybill bench once. It returns an error if notifications were lost.
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

// profile writes profiles of the measurements that are worse, for both programs. A revision without
// the flag --cpu-profile gets none.
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
