package program

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/program/internal/bench"
)

func newBenchCompare(p *invocation) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "compare BEFORE.json AFTER.json",
		Short: "Compare two results of waybill bench --json",
		Long: `Show, for each figure that two results share, the ratio of after to before and the
interval in which it lies with a confidence of 95 %: of the geometric means of the
runs, by Welch's method on their logarithms. Where the interval holds 1, no
difference is seen; more runs make it narrower.

Differences of machine, database and settings are reported. Figures compare well
only if nothing but the thing in question has changed.`,
		Example: `  waybill bench drain --runs 10 --json > before.json
  waybill bench drain --runs 10 --json > after.json
  waybill bench compare before.json after.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return wrongUsage(cmd, errors.New("name two files that waybill bench --json wrote"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			before, err := bench.Read(args[0])
			after, err2 := bench.Read(args[1])
			if err := errors.Join(err, err2); err != nil {
				return wrongUsage(cmd, err)
			}
			comparison := bench.Compare(before, after)
			if asJSON {
				return printJSON(p.stdout, comparison)
			}
			comparison.Print(p.stdout)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the comparison as JSON")
	return cmd
}
