package program

import (
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/program/demo"
)

func newDemo(p *invocation) *cobra.Command {
	cmd := demo.Command(p.raw, p.stderr)
	cmd.Args = noArguments
	validate := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, arguments []string) error {
		if err := validate(cmd, arguments); err != nil {
			return wrongUsage(cmd, err)
		}
		return nil
	}
	return cmd
}
