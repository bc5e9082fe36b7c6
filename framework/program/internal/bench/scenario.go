package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/benchmarks/result"
)

// scenario is a set of cases that are compared with each other.
type scenario struct {
	name string
	run  func(*bench, context.Context) ([]result.Case, error)
}

// scenarios has all scenarios in the order in which they run.
func scenarios() []scenario {
	return []scenario{
		{"publish", (*bench).publish},
		{"drain", (*bench).drain},
		{"latency", (*bench).latency},
		{"sustain", (*bench).sustain},
		{"sweep", (*bench).sweep},
		{"fault", (*bench).fault},
	}
}

// everything is the argument for all scenarios.
const everything = "all"

// DefaultScenarios are the default scenarios, which take a minute or two together.
var DefaultScenarios = []string{"publish", "drain", "latency"}

// AllScenarios returns the names of all scenarios.
func AllScenarios() []string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

// scenarios returns the scenarios that the user wants.
func (c Config) scenarios() []scenario {
	return slices.DeleteFunc(scenarios(), func(s scenario) bool { return !slices.Contains(c.Scenarios, s.name) })
}

// trial is a case of a scenario, which is measured several times.
type trial struct {
	name string
	run  func(ctx context.Context, r round) (measurement, error)
}

// round is one measurement of all cases of a scenario, one after the other.
type round struct{ warmUp bool }

// length returns how long a run takes in this round, if d is its normal duration.
func (r round) length(d time.Duration) time.Duration {
	if r.warmUp {
		return min(d, 500*time.Millisecond)
	}
	return d
}

// measurement is the result of one run of a trial.
type measurement struct {
	figures []result.Figure
	checks  []result.Check
}

// rounds measures the trials alternately, so that other load of the machine affects all of them
// equally: a warm-up, which does not count, and then as many rounds as the user wants.
func (b *bench) rounds(ctx context.Context, scenario string, trials []trial) ([]result.Case, error) {
	cases := make([]result.Case, len(trials))
	for i := range cases {
		cases[i].Name = trials[i].name
	}
	b.progress.Begin(scenario, len(trials)*(b.config.Runs+1))
	for n := range b.config.Runs + 1 {
		for i, t := range trials {
			b.progress.Step(stepName(t.name, n, b.config.Runs))
			m, err := t.run(ctx, round{warmUp: n == 0})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", t.name, err)
			}
			if n > 0 {
				cases[i].Add(m.figures...)
			}
			cases[i].AddChecks(m.checks...) // what is lost while warming up is lost too
		}
	}
	b.progress.End()
	return cases, nil
}

func stepName(trial string, round, runs int) string {
	if round == 0 {
		return trial + ": warm-up"
	}
	return fmt.Sprintf("%s: run %d of %d", trial, round, runs)
}
