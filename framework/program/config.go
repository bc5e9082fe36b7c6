package program

import "github.com/spf13/cobra"

func newConfig(p *invocation) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Look at a configuration before it is used",
		Long: `Commands about the configuration itself. None of them opens the database or
delivers anything.`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCheck(p), newExplain(p), newInit(p), newPassword(p), newSchema(p), newSecret(p), newShow(p))
	return cmd
}
