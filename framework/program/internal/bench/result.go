package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// format is the version of the JSON form of a Result. It changes when a key is renamed or removed, or
// changes its meaning.
const format = 1

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
	// Against is the comparison with an earlier result; nil if none was requested.
	Against *Comparison `json:"against,omitempty"`
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
	Rate         int     `json:"rate"`
	Duration     float64 `json:"duration_seconds"`
}

func (c Config) settings() Settings {
	return Settings{
		Runs: c.Runs, Rows: c.Rows, PayloadBytes: c.PayloadBytes, Type: c.Sample.Type, Keys: c.Keys, Threshold: c.Threshold,
		DelayMS: milliseconds(c.Delay), Rate: c.Rate, Duration: c.Duration.Seconds(),
	}
}

// Scenario is the result of one scenario.
type Scenario struct {
	Name  string `json:"name"`
	Cases []Case `json:"cases"`
}

// Case is a case that was measured several times.
type Case struct {
	Name string `json:"name"`
	// Skipped is why there is no result; "" if there is one.
	Skipped string   `json:"skipped,omitempty"`
	Metrics []Metric `json:"metrics"`
	Checks  []Check  `json:"checks"`
	// Series are values over time, of the last run.
	Series []Series `json:"series"`
}

// Quantity is a measurable quantity.
type Quantity struct {
	Name string `json:"name"`
	// Unit is empty for counts and ratios.
	Unit string `json:"unit"`
	// Better is "higher", "lower", or "" if neither is better.
	Better string `json:"better"`
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
}

// Series is a quantity over time.
type Series struct {
	Quantity
	Points []Point `json:"points"`
}

// Point is one value of a Series.
type Point struct {
	Seconds float64 `json:"t"` // since the run began
	Value   float64 `json:"v"`
}

// add adds one run.
func (c *Case) add(m measurement) {
	for _, f := range m.figures {
		c.metric(f.Quantity).add(f.value)
	}
	c.addChecks(m.checks)
	if m.series != nil {
		c.Series = m.series
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

// find returns the metric with this name; nil if there is none.
func (c *Case) find(name string) *Metric {
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

func (c *Case) addChecks(checks []Check) {
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
	}
}

// addShare adds to each case the ratio of its runs to those of another case in the same rounds.
func (c *Case) addShare(q Quantity, metric string, of *Case) {
	own, base := c.find(metric), of.find(metric)
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

func (c Check) ok() bool { return c.Lost == 0 && c.Unknown == 0 }

// judge sets OK, and adds warnings about what makes figures doubtful.
func (r *Result) judge() {
	r.OK = true
	for _, s := range r.Scenarios {
		for _, c := range s.Cases {
			for _, check := range c.Checks {
				r.OK = r.OK && check.ok()
				if check.Repeated > 0 {
					r.warn("%s, %s: %d notifications arrived more than once at %s; the forwarder must have been slower than its lease, or connections broke",
						s.Name, c.Name, check.Repeated, check.Sink)
				}
			}
		}
	}
	if r.Settings.Runs < DefaultRuns {
		r.warn("%s per case are too few: chance decides; use at least %d", plural(r.Settings.Runs, "run"), DefaultRuns)
	}
	r.judgeMemory()
	r.judgeSpread()
	for i := range r.Scenarios {
		r.Scenarios[i].fill()
	}
	r.Warnings = append([]string{}, r.Warnings...)
}

// judgeMemory warns of backlogs that do not fit in memory.
func (r *Result) judgeMemory() {
	largest := 0.0
	for _, s := range r.Scenarios {
		for _, c := range s.Cases {
			if m := c.find(rowsOf.Name); m != nil {
				largest = max(largest, m.Max)
			}
		}
	}
	if size := bytesOnDisk(int(largest), r.Settings.PayloadBytes); r.Machine.MemoryBytes > 0 && uint64(size) > r.Machine.MemoryBytes/2 {
		r.warn("the backlog takes about %s, and the machine has %s of memory: each run reads different parts of it from the disk",
			bytesText(size), bytesText(int64(r.Machine.MemoryBytes)))
	}
}

// maxSpread is how far apart the runs of a case may be, as a share of the median, without a
// warning.
const maxSpread = 0.3

// judgeSpread warns of cases whose runs are far apart, by the first metric of each case.
func (r *Result) judgeSpread() {
	all := 0
	var apart []string
	for _, s := range r.Scenarios {
		for _, c := range s.Cases {
			if len(c.Metrics) == 0 {
				continue
			}
			all++
			m := c.Metrics[0]
			if spread := (m.Max - m.Min) / m.Median; m.Median > 0 && spread > maxSpread {
				apart = append(apart, fmt.Sprintf("%s, %s: %s to %s %s", s.Name, c.Name, number(m.Min), number(m.Max), m.Unit))
			}
		}
	}
	if len(apart) > 0 {
		r.warn("the runs are far apart in %d of %d cases (such as %s): the machine has other load, or the runs are too short; raise --runs, --rows or --duration",
			len(apart), all, apart[0])
	}
}

func (r *Result) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

// fill replaces nil lists, so that they are [] in JSON and not null.
func (s *Scenario) fill() {
	for i := range s.Cases {
		c := &s.Cases[i]
		c.Metrics = append([]Metric{}, c.Metrics...)
		c.Checks = append([]Check{}, c.Checks...)
		c.Series = append([]Series{}, c.Series...)
	}
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
	case r.Format != format:
		return nil, fmt.Errorf("%s has the format %d, but this program reads %d: measure again", file, r.Format, format)
	case len(r.Scenarios) == 0:
		return nil, errors.New(file + " has no scenarios")
	}
	return r, nil
}
