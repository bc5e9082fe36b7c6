package program

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/program/internal/bench"
	"github.com/waybill-go/waybill/framework/program/internal/command"
)

func newBenchCompare(p *command.Invocation) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "compare BEFORE.json AFTER.json",
		Short: "Compare two results of waybill bench --json",
		Long: `Show the ratio of after to before for each figure that two results share, with its 95%
confidence interval. The ratio is of the geometric means of the runs, and the interval
comes from Welch's method on their logarithms. An interval that contains 1 shows no
difference; more runs make it narrower.

The output also reports differences in machine, database and settings. Compare only
results in which nothing but the thing under test has changed.`,
		Example: `  waybill bench drain --runs 10 --json > before.json
  waybill bench drain --runs 10 --json > after.json
  waybill bench compare before.json after.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return command.WrongUsage(cmd, errors.New("name two files that waybill bench --json wrote"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			before, err := bench.Read(args[0])
			after, err2 := bench.Read(args[1])
			if err := errors.Join(err, err2); err != nil {
				return command.WrongUsage(cmd, err)
			}
			comparison := bench.Compare(before, after)
			if asJSON {
				return command.PrintJSON(p.Stdout, comparison)
			}
			comparison.Print(p.Stdout)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the comparison as JSON")
	return cmd
}
