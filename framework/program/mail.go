package program

import "github.com/spf13/cobra"

func newMail(p *invocation) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mail",
		Short: "Look at mails before they are sent",
		Long:  `Commands about the mails of email sinks. None of them sends one.`,
		Args:  noSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPreview(p))
	return cmd
}
