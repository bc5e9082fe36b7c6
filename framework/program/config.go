package program

import (
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/program/internal/command"
)

func newConfig(p *command.Invocation) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check, show and explain a configuration",
		Long: `Check, show and explain a configuration. None of these commands opens the database or
delivers anything.`,
		Args: command.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(command.WrongFlag)
	cmd.AddCommand(newCheck(p), newExplain(p), newInit(p), newPassword(p), newSchema(p), newShow(p))
	return cmd
}
