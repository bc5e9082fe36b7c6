package result

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mathext"
)

// confidence is the confidence of the intervals of a Comparison.
const confidence = 0.95

// Comparison compares two results.
type Comparison struct {
	Rows []ComparedMetric `json:"rows"`
	// Warnings are reasons why the results are not, or less, comparable.
	Warnings []string `json:"warnings"`
}

// ComparedMetric is a metric of a case that both results have.
type ComparedMetric struct {
	Scenario string `json:"scenario"`
	Case     string `json:"case"`
	Quantity
	Before float64 `json:"before"` // medians
	After  float64 `json:"after"`
	// Ratio is after divided by before, as geometric means of the runs. It is between Low and High
	// with a confidence of 95 %. If a side has only one run, Low and High are 0.
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// Verdict is better, worse, or the same if the interval contains 1. It is unknown without an
	// interval.
	Verdict Verdict `json:"verdict"`
}

// Verdict is the meaning of a ratio.
type Verdict string

// The verdicts.
const (
	Better  Verdict = "better"
	Worse   Verdict = "worse"
	Same    Verdict = "no difference seen"
	Unknown Verdict = "unknown"
)

// Compare compares the metrics that two results share. It leaves out metrics for which neither
// direction is better, and values that are not above 0.
func Compare(before, after *Result) Comparison {
	c := Comparison{Rows: []ComparedMetric{}, Warnings: []string{}}
	c.warn("before", before)
	c.warn("after", after)
	if before.Waybill != after.Waybill {
		c.Warnings = append(c.Warnings, fmt.Sprintf("the versions of waybill differ: %s before, %s after", before.Waybill, after.Waybill))
	}
	c.warnOfDifferences("machine", before.Machine.stable(), after.Machine.stable())
	c.warnOfDifferences("database", before.Server.stable(), after.Server.stable())
	c.warnOfDifferences("settings", before.Settings, after.Settings)
	for _, s := range before.Scenarios {
		i := slices.IndexFunc(after.Scenarios, func(other Scenario) bool { return other.Name == s.Name })
		if i < 0 {
			c.Warnings = append(c.Warnings, fmt.Sprintf("only before has %s", s.Name))
			continue
		}
		c.compareCases(s, after.Scenarios[i])
	}
	for _, s := range after.Scenarios {
		if !slices.ContainsFunc(before.Scenarios, func(other Scenario) bool { return other.Name == s.Name }) {
			c.Warnings = append(c.Warnings, fmt.Sprintf("only after has %s", s.Name))
		}
	}
	return c
}

// stable returns the properties of a machine that do not change from run to run.
func (m Machine) stable() Machine {
	m.Busy, m.Load = 0, 0
	return m
}

// stable returns the properties of a database that do not change from run to run.
func (s Server) stable() Server {
	s.RoundTripMS = 0
	return s
}

// Worse returns the metrics that are worse by more than a tolerance, which is a share such as 0.1.
// unclear has those whose interval contains 1, so that chance may explain them. Without an interval
// the ratio decides.
func (c Comparison) Worse(tolerance float64) (worse, unclear []ComparedMetric) {
	for _, m := range c.Rows {
		switch by := m.worseBy(); {
		case by <= tolerance:
		case m.Verdict == Same:
			unclear = append(unclear, m)
		default:
			worse = append(worse, m)
		}
	}
	return worse, unclear
}

// worseBy returns the share by which after is worse; it is negative if after is better.
func (m ComparedMetric) worseBy() float64 {
	if m.Better == "higher" {
		return 1 - m.Ratio
	}
	return m.Ratio - 1
}

// String names the metric with both values.
func (m ComparedMetric) String() string {
	return fmt.Sprintf("%s, %s: %s was %s before and is %s now: %.2f times", m.Scenario, m.Case, m.title(), Number(m.Before), Number(m.After), m.Ratio)
}

func (c *Comparison) warn(which string, r *Result) {
	if !r.OK {
		c.Warnings = append(c.Warnings, which+" lost notifications: its figures are worth nothing")
	}
	for _, warning := range r.Warnings {
		c.Warnings = append(c.Warnings, which+": "+warning)
	}
}

// warnOfDifferences names the fields in which two values of one type differ.
func (c *Comparison) warnOfDifferences(what string, before, after any) {
	a, b := reflect.ValueOf(before), reflect.ValueOf(after)
	for i := range a.NumField() {
		if x, y := a.Field(i).Interface(), b.Field(i).Interface(); !reflect.DeepEqual(x, y) {
			name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s: %s differs: %v before, %v after", what, name, x, y))
		}
	}
}

func (c *Comparison) compareCases(before, after Scenario) {
	for _, one := range before.Cases {
		i := slices.IndexFunc(after.Cases, func(other Case) bool { return other.Name == one.Name })
		if i < 0 {
			c.Warnings = append(c.Warnings, fmt.Sprintf("only before has %s, %s", before.Name, one.Name))
			continue
		}
		for _, m := range one.Metrics {
			other := after.Cases[i].Find(m.Name)
			if m.Better == "" || other == nil || m.Min <= 0 || other.Min <= 0 {
				continue
			}
			row := ComparedMetric{Scenario: before.Name, Case: one.Name, Quantity: m.Quantity, Before: m.Median, After: other.Median}
			row.Ratio, row.Low, row.High = ratio(m.Runs, other.Runs)
			row.Verdict = row.verdict()
			c.Rows = append(c.Rows, row)
		}
	}
}

// ratio divides the geometric mean of after by that of before. The interval is Welch's for the
// difference of the means of the logarithms. It assumes that the runs are log-normal, but not that
// their variances are equal: B. L. Welch, "The generalization of
// Student's problem when several different population variances are involved",
// Biometrika 34, 1947.
func ratio(before, after []float64) (ratio, low, high float64) {
	x, y := logarithms(before), logarithms(after)
	meanX, vx := meanOf(x)
	meanY, vy := meanOf(y)
	difference := meanY - meanX
	ratio = math.Exp(difference)
	if len(x) < 2 || len(y) < 2 {
		return ratio, 0, 0
	}
	if vx+vy == 0 {
		return ratio, ratio, ratio // without variance there is no uncertainty
	}
	freedom := (vx + vy) * (vx + vy) / (vx*vx/float64(len(x)-1) + vy*vy/float64(len(y)-1))
	margin := student(freedom) * math.Sqrt(vx+vy)
	return ratio, math.Exp(difference - margin), math.Exp(difference + margin)
}

// meanOf returns the mean of values, and the variance of that mean, which is NaN for a single value.
func meanOf(values []float64) (mean, variance float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		variance += (v - mean) * (v - mean) / (n - 1)
	}
	return mean, variance / n
}

// student returns the two-sided quantile of Student's distribution with this number of degrees of
// freedom, for the confidence of a Comparison. It computes the tails as an incomplete beta function
// (Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.1).
func student(freedom float64) float64 {
	x := mathext.InvRegIncBeta(freedom/2, 0.5, 1-confidence)
	return math.Sqrt(freedom * (1 - x) / x)
}

func logarithms(values []float64) []float64 {
	logs := make([]float64, len(values))
	for i, v := range values {
		logs[i] = math.Log(v)
	}
	return logs
}

func (m ComparedMetric) verdict() Verdict {
	switch {
	case m.High == 0:
		return Unknown
	case m.Low <= 1 && m.High >= 1:
		return Same
	case (m.Low > 1) == (m.Better == "higher"):
		return Better
	}
	return Worse
}

// Grid returns the table of the comparison with its head.
func (c Comparison) Grid() [][]string {
	grid := [][]string{{"", "", "before", "after", "ratio", "95 % interval", ""}}
	for _, m := range c.Rows {
		grid = append(grid, []string{m.Scenario + ", " + m.Case, m.title(), Number(m.Before), Number(m.After), fmt.Sprintf("%.2f", m.Ratio), m.interval(), string(m.Verdict)})
	}
	return grid
}

func (m ComparedMetric) interval() string {
	if m.High == 0 {
		return "needs two runs"
	}
	return fmt.Sprintf("%.2f–%.2f", m.Low, m.High)
}
