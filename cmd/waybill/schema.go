package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/cmd/waybill/internal/config"
)

func newSchema(p *program) *cobra.Command {
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
		RunE:    func(cmd *cobra.Command, _ []string) error { return writeSchema(p.stdout, cmd.Root()) },
	}
}

func writeSchema(w io.Writer, _ *cobra.Command) error {
	kinds, err := provideKinds()
	if err != nil {
		return err
	}
	return config.WriteSchema(w, kinds)
}
