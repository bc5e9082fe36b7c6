package program

import (
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/program/demo"
	"github.com/waybill-go/waybill/framework/program/internal/command"
)

func newDemo(p *command.Invocation) *cobra.Command {
	cmd := demo.Command(p.Raw, p.Stderr)
	cmd.Args = command.NoArguments
	validate := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, arguments []string) error {
		if err := validate(cmd, arguments); err != nil {
			return command.WrongUsage(cmd, err)
		}
		return nil
	}
	return cmd
}
