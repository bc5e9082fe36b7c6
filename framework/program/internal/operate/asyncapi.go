package operate

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/route"
)

func newAsyncAPI(p *command.Invocation) *cobra.Command {
	flags, title, version := command.SourceFlags{}, p.Name, "1.0.0"
	cmd := &cobra.Command{
		Use:   "asyncapi",
		Short: "Print the types as AsyncAPI, for those who consume them",
		Long: `Print a document of AsyncAPI 3.0 in JSON: the sinks to which others listen, what goes
there under which condition, and the schemas of the types that the program registers or
that the configuration names.

The document has no secrets, and no paths of URLs, which may be secret. Sinks that stay
inside the application, such as functions, are not part of it.

The command needs no database, and no variables of secrets. A host or an address that
comes from a variable without a value is left out.`,
		Example: `  waybill types asyncapi > asyncapi.json
  waybill types asyncapi --title shop --api-version 2.1.0`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			source, err := p.FileSource(cmd, flags)
			if err != nil {
				return err
			}
			text, err := asyncAPI(source, p.Options, title, version)
			if err != nil {
				return err
			}
			_, err = p.Stdout.Write(text)
			return err
		},
	}
	flags.AddFile(cmd)
	cmd.Flags().StringVar(&title, "title", title, "title of the document")
	cmd.Flags().StringVar(&version, "api-version", version, "version of what the document describes")
	return cmd
}

func asyncAPI(source config.Source, options config.Options, title, version string) ([]byte, error) {
	c, err := config.LoadChannels(source, options)
	if err != nil {
		return nil, err
	}
	routes, err := c.Table()
	if err != nil {
		return nil, err
	}
	contracts, err := c.Contracts()
	if err != nil {
		return nil, err
	}
	about := contract.Catalogue{Title: title, Version: version}
	channels := c.Channels()
	for _, sink := range slices.Sorted(maps.Keys(channels)) {
		about.Outlets = append(about.Outlets, contract.Outlet{
			Sink: sink, Channel: channels[sink], Routes: c.RoutesTo(sink), Types: outgoing(routes, sink, contracts),
		})
	}
	return contracts.AsyncAPI(about)
}

// outgoing returns the known types that go to a sink.
func outgoing(routes *route.Table, sink string, contracts *contract.Set) (types []contract.Outgoing) {
	var names []string
	for _, name := range routes.Types() {
		names = append(names, routes.TypeOf(name))
	}
	for _, c := range contracts.All() {
		names = append(names, c.Type)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		rules := admin.RulesOf(routes.To(sink), name)
		if len(rules) == 0 || notification.IsReserved(name) {
			continue
		}
		out := contract.Outgoing{Type: name}
		for _, r := range rules {
			out.Rules = append(out.Rules, contract.Rule{When: r.When, Payload: slices.Sorted(maps.Keys(r.Payload))})
		}
		types = append(types, out)
	}
	return types
}
