// Package result has what benchmarks measure: figures of several runs, and checks of what arrived. It
// reads and writes them as JSON, lays them out as tables, and compares two results.
package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// Format is the version of the JSON form of a Result. It changes when a key is renamed or removed, or
// changes its meaning.
const Format = 2

// Result has everything that a bench measured.
type Result struct {
	Format  int       `json:"format"`
	Waybill string    `json:"waybill"` // version of the program
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	// OK means that nothing was lost.
	OK       bool     `json:"ok"`
	Machine  Machine  `json:"machine"`
	Server   Server   `json:"database"`
	Settings Settings `json:"settings"`
	// Warnings are reasons not to trust the figures, or to trust them less.
	Warnings  []string   `json:"warnings"`
	Scenarios []Scenario `json:"scenarios"`
	// Advice is what to do about the figures; "" if there is nothing to say.
	Advice string `json:"advice,omitempty"`
}

// Warn adds a warning.
func (r *Result) Warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

// Settings are the user's choices; for 0 and "" the scenarios choose.
type Settings struct {
	Runs         int     `json:"runs"`
	Rows         int     `json:"rows"`
	PayloadBytes int     `json:"payload_bytes"`
	Type         string  `json:"type"` // of the user's notification; "" for made-up ones
	Keys         int     `json:"keys"`
	Threshold    int     `json:"threshold"`
	DelayMS      float64 `json:"delay_ms"`
	Duration     float64 `json:"duration_seconds"`
}

// Scenario is the result of one scenario.
type Scenario struct {
	Name  string `json:"name"`
	Cases []Case `json:"cases"`

	// The comparison with peers sets these too: it can measure a single scenario again.

	Title    string     `json:"title,omitempty"`
	About    string     `json:"about,omitempty"` // what is done and measured
	Begun    time.Time  `json:"begun,omitzero"`
	Revision string     `json:"revision,omitempty"` // of git; a "+" at the end: with changes
	Load     [2]float64 `json:"load,omitzero"`      // the average over a minute, before and after
}

// Case is a case that was measured several times.
type Case struct {
	Name string `json:"name"`
	// Configuration describes the settings.
	Configuration string `json:"configuration,omitempty"`
	// Skipped is why there is no result; "" if there is one.
	Skipped string `json:"skipped,omitempty"`
	// Lossy is why notifications are lost, where that is known of a contender.
	Lossy string `json:"lossy,omitempty"`
	// Unfinished means that not everything arrived before the time limit.
	Unfinished bool `json:"unfinished,omitempty"`
	// Spoiled names the runs that no metric counts, with the reason.
	Spoiled []string `json:"spoiled,omitempty"`

	Metrics []Metric `json:"metrics"`
	Checks  []Check  `json:"checks"`
}

// Quantity is a measurable quantity.
type Quantity struct {
	Name string `json:"name"`
	// Unit is empty for counts and ratios.
	Unit string `json:"unit"`
	// Better is "higher", "lower", or "" if neither is better.
	Better string `json:"better"`
	// Title replaces Name and Unit in tables; "" for none.
	Title string `json:"title,omitempty"`
}

// Of returns a figure of the quantity.
func (q Quantity) Of(value float64) Figure { return Figure{q, value} }

// Figure is one measured value.
type Figure struct {
	Quantity
	Value float64
}

// Metric is a quantity that was measured in several runs.
type Metric struct {
	Quantity
	Runs   []float64 `json:"runs"` // in their order
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
}

// Check compares what arrived with what was published, by ids, over all runs and
// warm-ups.
type Check struct {
	Sink string `json:"sink"`
	// Counted is where arrivals were counted: received, consumed (from Kafka), receipts (of a real
	// sink), or rows (in the outbox).
	Counted  string `json:"counted"`
	Expected int64  `json:"expected"`
	Arrived  int64  `json:"arrived"` // different ones
	Lost     int64  `json:"lost"`
	// Repeated counts repeated arrivals. Since delivery is at least once, they are not a failure, but
	// nothing here should cause them.
	Repeated int64 `json:"repeated"`
	Unknown  int64 `json:"unknown"` // were never published
	// OutOfOrder arrived after a later one of their key, although their transactions did not overlap.
	OutOfOrder int64 `json:"out_of_order,omitempty"`
	// Unsettled arrived, and are still pending after the relay has stopped, so they would arrive again.
	Unsettled int64 `json:"unsettled,omitempty"`
}

// Add adds the figures of one run.
func (c *Case) Add(figures ...Figure) {
	for _, f := range figures {
		c.metric(f.Quantity).add(f.Value)
	}
}

func (c *Case) metric(q Quantity) *Metric {
	i := slices.IndexFunc(c.Metrics, func(m Metric) bool { return m.Quantity == q })
	if i < 0 {
		i = len(c.Metrics)
		c.Metrics = append(c.Metrics, Metric{Quantity: q})
	}
	return &c.Metrics[i]
}

// Find returns the metric with this name; nil if there is none.
func (c *Case) Find(name string) *Metric {
	i := slices.IndexFunc(c.Metrics, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Metrics[i]
}

func (m *Metric) add(value float64) {
	m.Runs = append(m.Runs, value)
	sorted := slices.Sorted(slices.Values(m.Runs))
	m.Min, m.Max = sorted[0], sorted[len(sorted)-1]
	m.Median = (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// AddChecks adds checks to those of the same sink.
func (c *Case) AddChecks(checks ...Check) {
	for _, one := range checks {
		i := slices.IndexFunc(c.Checks, func(known Check) bool { return known.Sink == one.Sink && known.Counted == one.Counted })
		if i < 0 {
			c.Checks = append(c.Checks, one)
			continue
		}
		sum := &c.Checks[i]
		sum.Expected += one.Expected
		sum.Arrived += one.Arrived
		sum.Lost += one.Lost
		sum.Repeated += one.Repeated
		sum.Unknown += one.Unknown
		sum.OutOfOrder += one.OutOfOrder
		sum.Unsettled += one.Unsettled
	}
}

// AddShare adds to each case the ratio of its runs to those of another case in the same rounds.
func (c *Case) AddShare(q Quantity, metric string, of *Case) {
	own, base := c.Find(metric), of.Find(metric)
	if own == nil || base == nil {
		return
	}
	shares := make([]float64, 0, len(own.Runs))
	for i := range min(len(own.Runs), len(base.Runs)) {
		if base.Runs[i] > 0 {
			shares = append(shares, own.Runs[i]/base.Runs[i])
		}
	}
	for _, share := range shares {
		c.metric(q).add(share)
	}
}

// OK reports whether everything arrived, and nothing else.
func (c Check) OK() bool { return c.Lost == 0 && c.Unknown == 0 }

// Write writes the result to a file as JSON.
func (r *Result) Write(file string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// Read reads a result from a JSON file.
func Read(file string) (*Result, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(Result)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s is not a result of waybill bench --json: %w", file, err)
	}
	switch {
	case r.Format == 0:
		return nil, fmt.Errorf("%s is not a result of waybill bench --json", file)
	case r.Format != Format:
		return nil, fmt.Errorf("%s has the format %d, but this program reads %d: measure again", file, r.Format, Format)
	case len(r.Scenarios) == 0:
		return nil, errors.New(file + " has no scenarios")
	}
	return r, nil
}
