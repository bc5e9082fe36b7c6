package program

import "github.com/spf13/cobra"

func newMail(p *invocation) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mail",
		Short: "Preview the mails of email sinks",
		Long:  `Preview the mails of email sinks. No mail is sent.`,
		Args:  noSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(wrongFlag)
	cmd.AddCommand(newPreview(p))
	return cmd
}
