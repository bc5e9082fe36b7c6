package program

import "github.com/spf13/cobra"

func newConfig(p *invocation) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check, show and explain a configuration",
		Long: `Check, show and explain a configuration. None of these commands opens the database or
delivers anything.`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(wrongFlag)
	cmd.AddCommand(newCheck(p), newExplain(p), newInit(p), newPassword(p), newSchema(p), newSecret(p), newShow(p))
	return cmd
}
