package program

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

func newSecret(p *command.Invocation) *cobra.Command {
	s := &secret{Invocation: p}
	cmd := &cobra.Command{
		Use:   "secret SINK URL",
		Short: "Print the signing secret of one receiver of an http sink",
		Long: `Print the secret with which one receiver of an http sink verifies requests. The sink
derives it from its master_secret and the scheme, host and port of the receiver's URL.
Give it to the owner of that host only, and keep it out of logs.

There is one line for each master secret, that of master_secret first. The command needs
neither the database's address nor the sink's other secrets.`,
		Example: `  waybill config secret partners https://partner.example`,
		Args:    command.Arguments(2, "give a sink and the URL of one receiver, such as https://partner.example"),
		RunE:    s.run,
	}
	s.flags.AddFile(cmd)
	cmd.Flags().BoolVar(&s.json, "json", false, "print the result as JSON")
	return cmd
}

type secret struct {
	*command.Invocation
	flags command.SourceFlags
	json  bool
}

func (s *secret) run(cmd *cobra.Command, args []string) error {
	source, err := s.FileSource(cmd, s.flags)
	if err != nil {
		return err
	}
	masters, err := mastersOf(cmd, source, args[0])
	if err != nil {
		return err
	}
	var derived []string
	for _, master := range masters {
		d, err := httpsink.DeriveSecret(master, args[1])
		if err != nil {
			return command.WrongUsage(cmd, err)
		}
		derived = append(derived, d)
	}
	if s.json {
		return command.PrintJSON(s.Stdout, struct {
			Secrets []string `json:"secrets"`
		}{derived})
	}
	for _, d := range derived {
		terminal.Println(s.Stdout, d)
	}
	return nil
}

// mastersOf returns a sink's master secrets. It reads no other settings.
func mastersOf(cmd *cobra.Command, source config.Source, sink string) ([]string, error) {
	c, err := config.LoadDeliveries(source, config.Options{})
	if err != nil {
		return nil, err
	}
	switch found, ok := c.Sinks[sink]; {
	case !ok:
		return nil, command.WrongUsage(cmd, fmt.Errorf("there is no sink %q", sink))
	case found.Kind != httpsink.Kind().Name:
		return nil, command.WrongUsage(cmd, fmt.Errorf("sink %q is of the kind %s, not %s", sink, found.Kind, httpsink.Kind().Name))
	}
	var settings httpsink.Config
	keys := []string{"master_secret", "master_secrets"}
	if err := config.LoadSettings(source, sink, keys, &settings, func() error { return nil }); err != nil {
		return nil, err
	}
	var masters []string
	if settings.MasterSecret != "" {
		masters = append(masters, settings.MasterSecret)
	}
	masters = append(masters, settings.MasterSecrets...)
	if len(masters) == 0 {
		return nil, command.WrongUsage(cmd, fmt.Errorf("sink %q has no master_secret", sink))
	}
	return masters, nil
}
