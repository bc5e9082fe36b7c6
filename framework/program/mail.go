package program

import (
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/program/internal/command"
)

func newMail(p *command.Invocation) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mail",
		Short: "Preview the mails of email sinks",
		Long:  `Preview the mails of email sinks. No mail is sent.`,
		Args:  command.NoSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(command.WrongFlag)
	cmd.AddCommand(newPreview(p))
	return cmd
}
