package program

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

func newSecret(p *invocation) *cobra.Command {
	s := &secret{invocation: p}
	cmd := &cobra.Command{
		Use:   "secret SINK URL",
		Short: "Print the secret that one receiver of an http sink verifies requests with",
		Long: `Print the secret of one receiver of an http sink with a master_secret: what the owner
of that host gets, and nobody else. Of the URL scheme, host and port count.

There is a line for each master secret, that of master_secret first. What is printed is
a secret: it belongs into no log.

Neither the database's address nor the sink's other secrets are needed.`,
		Example: `  waybill config secret partners https://partner.example`,
		Args:    sinkAndURL,
		RunE:    s.run,
	}
	cmd.Flags().StringVarP(&s.flags.file, "config", "c", "", "configuration file (default: "+config.DefaultFile+", if it exists)")
	cmd.Flags().BoolVar(&s.json, "json", false, "print the result as JSON")
	return cmd
}

func sinkAndURL(cmd *cobra.Command, args []string) error {
	if len(args) < 2 {
		return wrongUsage(cmd, errors.New("give a sink and the URL of one receiver, such as https://partner.example"))
	}
	return noArguments(cmd, args[2:])
}

type secret struct {
	*invocation
	flags sourceFlags
	json  bool
}

func (s *secret) run(cmd *cobra.Command, args []string) error {
	source, err := s.fileSource(cmd, s.flags)
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
			return wrongUsage(cmd, err)
		}
		derived = append(derived, d)
	}
	if s.json {
		return printJSON(s.stdout, struct {
			Secrets []string `json:"secrets"`
		}{derived})
	}
	for _, d := range derived {
		fmt.Fprintln(s.stdout, d)
	}
	return nil
}

// mastersOf are a sink's master secrets. It looks at no other settings.
func mastersOf(cmd *cobra.Command, source config.Source, sink string) ([]string, error) {
	c, err := config.LoadDeliveries(source, config.Options{})
	if err != nil {
		return nil, err
	}
	switch found, ok := c.Sinks[sink]; {
	case !ok:
		return nil, wrongUsage(cmd, fmt.Errorf("there is no sink %q", sink))
	case found.Kind != httpsink.Kind().Name:
		return nil, wrongUsage(cmd, fmt.Errorf("sink %q is of the kind %s, not %s", sink, found.Kind, httpsink.Kind().Name))
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
		return nil, wrongUsage(cmd, fmt.Errorf("sink %q has no master_secret", sink))
	}
	return masters, nil
}
