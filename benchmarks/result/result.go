// Package result stores the results of a comparison: every run of every contender, and the machine.
package result

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/waybill-go/waybill/benchmarks/scenario"
)

// Result of a comparison.
type Result struct {
	Machine   Machine    `json:"machine"`
	Scenarios []Scenario `json:"scenarios"`
}

// Scenario is a scenario with the runs of its contenders.
type Scenario struct {
	Name       string            `json:"name"`
	Title      string            `json:"title"`
	About      string            `json:"about"`
	Begun      time.Time         `json:"begun"`
	Revision   string            `json:"revision,omitempty"` // of git; a "+" at the end: with changes
	Load       [2]float64        `json:"load"`               // the average over a minute, before and after
	Metrics    []scenario.Metric `json:"metrics"`
	Contenders []Contender       `json:"contenders"`
}

// Contender is a contender with its runs.
type Contender struct {
	Name          string            `json:"name"`
	Configuration string            `json:"configuration"`
	Lossy         string            `json:"lossy,omitempty"` // why it loses orders
	Runs          []scenario.Sample `json:"runs"`
}

// Spread is the median, minimum and maximum of some runs.
type Spread struct{ Median, Min, Max float64 }

// Add adds a run of a contender. The first run adds the contender too.
func (s *Scenario) Add(of scenario.Contender, run scenario.Sample) {
	i := slices.IndexFunc(s.Contenders, func(c Contender) bool { return c.Name == of.Name })
	if i < 0 {
		i = len(s.Contenders)
		s.Contenders = append(s.Contenders, Contender{Name: of.Name, Configuration: of.Configuration, Lossy: of.Lossy})
	}
	s.Contenders[i].Runs = append(s.Contenders[i].Runs, run)
}

// Good returns the runs that are not spoiled.
func (c Contender) Good() (runs []scenario.Sample) {
	for _, r := range c.Runs {
		if r.Spoiled == "" {
			runs = append(runs, r)
		}
	}
	return runs
}

// Spread returns the spread of a metric over the good runs; false if none has the metric.
func (c Contender) Spread(key string) (Spread, bool) {
	var values []float64
	for _, r := range c.Good() {
		if v, ok := r.Metrics[key]; ok {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return Spread{}, false
	}
	slices.Sort(values)
	middle := len(values) / 2
	median := values[middle]
	if len(values)%2 == 0 {
		median = (values[middle-1] + values[middle]) / 2
	}
	return Spread{median, values[0], values[len(values)-1]}, true
}

// Total sums the problems of all runs. Losses count in spoiled runs too; a spoiled run that was not
// finished in time does not count as incomplete.
func (c Contender) Total() (total scenario.Sample) {
	total.Complete = true
	for _, r := range c.Runs {
		total.Complete = total.Complete && (r.Complete || r.Spoiled != "")
		total.Lost += r.Lost
		total.Unsettled += r.Unsettled
		total.Repeats += r.Repeats
		total.Swapped += r.Swapped
	}
	return total
}

// Keep adds the scenarios of an earlier result that were not measured again, and sorts all in the
// order of names. It returns an error if the earlier result is of another machine or of other versions.
func (r *Result) Keep(earlier *Result, names []string) error {
	if !r.Machine.is(earlier.Machine) {
		return errors.New("the earlier result is of another machine, or of other versions or settings: measure all scenarios again")
	}
	kept := slices.Clone(earlier.Scenarios)
	for _, s := range r.Scenarios {
		if i := slices.IndexFunc(kept, func(k Scenario) bool { return k.Name == s.Name }); i >= 0 {
			kept[i] = s
		} else {
			kept = append(kept, s)
		}
	}
	slices.SortStableFunc(kept, func(a, b Scenario) int {
		return cmp.Compare(slices.Index(names, a.Name), slices.Index(names, b.Name))
	})
	r.Scenarios, r.Machine = kept, earlier.Machine
	return nil
}

// Write writes the result to a file as JSON.
func (r *Result) Write(path string) error {
	content, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(content, '\n'), 0o644)
}

// Read reads a result that Write wrote.
func Read(path string) (*Result, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(Result)
	if err := json.Unmarshal(content, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}
