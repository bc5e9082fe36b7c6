package program

import (
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config/reference"
	"github.com/waybill-go/waybill/framework/program/internal/command"
)

func newSchema(p *command.Invocation) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of configurations, for editors",
		Long: `Print the JSON Schema (draft 2020-12) of the configuration, with which editors complete
keys, explain them and mark mistakes. Write it to a file beside the configuration, and
make the first line of the configuration

    # yaml-language-server: $schema=waybill.schema.json

as waybill config init does. The schema covers keys and the form of their values;
waybill config check finds every mistake.`,
		Example: `  waybill config schema > waybill.schema.json`,
		Args:    command.NoArguments,
		RunE:    func(*cobra.Command, []string) error { return reference.WriteSchema(p.Raw, p.Options.Kinds) },
	}
}
