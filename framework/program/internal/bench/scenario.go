package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// scenario is something that is measured: cases that are compared with each other.
type scenario struct {
	name string
	run  func(*bench, context.Context) ([]Case, error)
}

// scenarios in the order in which they run. A further one is a line here.
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

// everything is the word for all scenarios.
const everything = "all"

// DefaultScenarios are those that take a minute or two together.
var DefaultScenarios = []string{"publish", "drain", "latency"}

// AllScenarios are the names of all that there are.
func AllScenarios() []string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

// scenarios are those that the user wants.
func (c Config) scenarios() []scenario {
	return slices.DeleteFunc(scenarios(), func(s scenario) bool { return !slices.Contains(c.Scenarios, s.name) })
}

// trial is one case of a scenario, to be measured several times.
type trial struct {
	name string
	run  func(ctx context.Context, r round) (measurement, error)
}

// round is one time that all cases of a scenario are measured, one after the other.
type round struct{ warmUp bool }

// length is how long a run of d is in this round.
func (r round) length(d time.Duration) time.Duration {
	if r.warmUp {
		return min(d, 500*time.Millisecond)
	}
	return d
}

// measurement is what one run of a trial came to.
type measurement struct {
	figures []figure
	checks  []Check
	series  []Series
}

// figure is one measured value.
type figure struct {
	Quantity
	value float64
}

// rounds measures trials in turns, so that whatever else the machine does meets all
// of them alike: a warm-up that does not count, and then as many rounds as the user
// wants.
func (b *bench) rounds(ctx context.Context, scenario string, trials []trial) ([]Case, error) {
	cases := make([]Case, len(trials))
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
				cases[i].add(m)
			} else {
				cases[i].addChecks(m.checks) // what is lost while warming up is lost
			}
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
