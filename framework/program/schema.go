package program

import (
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
)

func newSchema(p *invocation) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of configurations, for editors",
		Long: `Print the JSON Schema of configurations (draft 2020-12), with which editors complete
keys, explain them and mark mistakes. An editor with YAML support reads it
from a file beside the configuration whose first line is

    # yaml-language-server: $schema=waybill.schema.json

as waybill config init writes it. The schema knows keys and the form of their
values; for all that waybill forward would refuse there is waybill config check.`,
		Example: `  waybill config schema > waybill.schema.json`,
		Args:    noArguments,
		RunE:    func(*cobra.Command, []string) error { return config.WriteSchema(p.stdout, p.options.Kinds) },
	}
}
