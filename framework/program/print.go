package program

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/deploy"
)

func newPrint(p *command.Invocation) *cobra.Command {
	var what strings.Builder
	about := deploy.Names()
	names := slices.Sorted(maps.Keys(about))
	for _, name := range names {
		fmt.Fprintf(&what, "\n  %-8s %s", name, about[name])
	}
	return &cobra.Command{
		Use:       "print " + strings.Join(names, "|"),
		Short:     "Print files for deploying and monitoring the program",
		Long:      "Print a file for deploying or monitoring the program:\n" + what.String(),
		Example:   "  waybill print rules > /etc/prometheus/waybill.yaml\n  waybill print systemd > /etc/systemd/system/waybill.service",
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if text, known := deploy.Text(args[0]); known {
					fmt.Fprint(p.Raw, text)
					return nil
				}
			}
			return command.WrongUsage(cmd, fmt.Errorf("name one of %s", strings.Join(names, ", ")))
		},
	}
}
