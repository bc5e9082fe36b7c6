package program

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/program/internal/bench"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

// against compares a bench with an earlier result.
type against struct {
	file      string
	tolerance percentage
	before    *bench.Result // nil if there is none
}

const defaultTolerance percentage = 10

// read reads the earlier result before anything starts.
func (a *against) read(cmd *cobra.Command, c bench.Config) (err error) {
	if a.file == "" {
		if cmd.Flags().Changed("tolerance") {
			return errors.New("--tolerance needs --against with an earlier result")
		}
		return nil
	}
	if a.before, err = bench.Read(a.file); err != nil {
		return fmt.Errorf("--against: %w", err)
	}
	if !c.Measures(a.before) {
		return fmt.Errorf("--against: %s has none of the scenarios to measure", a.file)
	}
	return nil
}

// judge compares a result with the earlier one. Its error names the figures that are worse.
func (a *against) judge(result *bench.Result) error {
	if a.before == nil {
		return nil
	}
	comparison := bench.Compare(a.before, result)
	result.Against = &comparison
	if len(comparison.Rows) == 0 {
		return fmt.Errorf("%s and this result have no figure in common, so nothing is compared", a.file)
	}
	worse, _ := comparison.Worse(a.tolerance.share())
	if len(worse) == 0 {
		return nil
	}
	return fmt.Errorf("worse than in %s by more than %s: %s", a.file, a.tolerance.String(), listed(worse, "; "))
}

// print writes the comparison, and names the figures that look worse but may be so by chance.
func (a *against) print(w io.Writer, comparison *bench.Comparison) {
	if comparison == nil {
		return
	}
	terminal.Printf(w, "\nAgainst %s:\n\n", a.file)
	comparison.Print(w)
	if _, unclear := comparison.Worse(a.tolerance.share()); len(unclear) > 0 {
		fmt.Fprintf(w, "\nWorse by more than %s, but the runs differ so much that it may be chance; use more --runs to find out:\n  %s\n", a.tolerance.String(), listed(unclear, "\n  "))
	}
}

func listed(metrics []bench.ComparedMetric, separator string) string {
	var texts []string
	for _, m := range metrics {
		texts = append(texts, m.String())
	}
	return strings.Join(texts, separator)
}

// percentage is the value of a flag, such as 10%.
type percentage float64

func (p percentage) share() float64 { return float64(p) / 100 }

func (p percentage) String() string { return strconv.FormatFloat(float64(p), 'f', -1, 64) + "%" }

func (p *percentage) Set(text string) error {
	number, some := strings.CutSuffix(text, "%")
	value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !some || err != nil || !(value >= 0 && value < 100) {
		return errors.New("use a percentage from 0% to less than 100%")
	}
	*p = percentage(value)
	return nil
}

func (p *percentage) Type() string { return "percentage" }
