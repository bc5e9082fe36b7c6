package program

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	measured "github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/framework/program/internal/bench"
	"github.com/waybill-go/waybill/framework/program/internal/command"
)

func newBenchCompare(p *command.Invocation) *cobra.Command {
	asJSON, tolerance := false, percentage(10)
	cmd := &cobra.Command{
		Use:   "compare BEFORE.json AFTER.json",
		Short: "Compare two results of waybill bench --json",
		Long: `Show the ratio of after to before for each figure that two results share, with its 95%
confidence interval. The ratio is of the geometric means of the runs, and the interval
comes from Welch's method on their logarithms. An interval that contains 1 shows no
difference; more runs make it narrower.

The exit code is 1 if a figure is worse by more than --tolerance and chance does not
explain the difference; the error names these figures. With a single run there is no
interval, and the ratio decides.

The output also reports differences in machine, database and settings. Compare only
results in which nothing but the thing under test has changed.`,
		Example: `  waybill bench drain --runs 10 --json > before.json
  waybill bench drain --runs 10 --json > after.json
  waybill bench compare before.json after.json --tolerance 20%`,
		Args: command.Arguments(2, "name two files that waybill bench --json wrote"),
		RunE: func(cmd *cobra.Command, args []string) error {
			before, err := measured.Read(args[0])
			after, err2 := measured.Read(args[1])
			if err := errors.Join(err, err2); err != nil {
				return command.WrongUsage(cmd, err)
			}
			comparison := measured.Compare(before, after)
			if asJSON {
				return errors.Join(command.PrintJSON(p.Stdout, comparison), tolerance.judge(comparison))
			}
			bench.PrintComparison(p.Stdout, comparison)
			if _, unclear := comparison.Worse(tolerance.share()); len(unclear) > 0 {
				fmt.Fprintf(p.Stdout, "\nWorse by more than %s, but the runs differ so much that it may be chance; use more --runs to find out:\n  %s\n", &tolerance, listed(unclear, "\n  "))
			}
			return tolerance.judge(comparison)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the comparison as JSON")
	cmd.Flags().Var(&tolerance, "tolerance", "how much worse a figure may be")
	return cmd
}

func newBenchPlot(p *command.Invocation) *cobra.Command {
	return &cobra.Command{
		Use:   "plot RESULT.json",
		Short: "Plot a result of waybill bench --json",
		Long: `Write a page with the plots and tables of a result to standard output. The page needs
no other file and no network.`,
		Example: "  waybill bench sweep --json > sweep.json\n  waybill bench plot sweep.json > sweep.html",
		Args:    command.Arguments(1, "name a file that waybill bench --json wrote"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := measured.Read(args[0])
			if err != nil {
				return command.WrongUsage(cmd, err)
			}
			return bench.WritePage(p.Stdout, r)
		},
	}
}

func listed(metrics []measured.ComparedMetric, separator string) string {
	var texts []string
	for _, m := range metrics {
		texts = append(texts, m.String())
	}
	return strings.Join(texts, separator)
}

// percentage is the value of a flag, such as 10%.
type percentage float64

func (p percentage) share() float64 { return float64(p) / 100 }

// judge returns an error that names the figures that are worse by more.
func (p percentage) judge(c measured.Comparison) error {
	if len(c.Rows) == 0 {
		return errors.New("the two results have no figure in common, so nothing is compared")
	}
	if worse, _ := c.Worse(p.share()); len(worse) > 0 {
		return fmt.Errorf("worse by more than %s: %s", &p, listed(worse, "; "))
	}
	return nil
}

func (p *percentage) String() string { return strconv.FormatFloat(float64(*p), 'f', -1, 64) + "%" }

func (p *percentage) Set(text string) error {
	number, some := strings.CutSuffix(text, "%")
	value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !some || err != nil || !(value >= 0 && value < 100) {
		return errors.New("use a percentage from 0% to less than 100%")
	}
	*p = percentage(value)
	return nil
}

func (*percentage) Type() string { return "percentage" }
