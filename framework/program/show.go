package program

import (
	"fmt"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/config"
)

func newShow(p *invocation) *cobra.Command {
	s := &show{invocation: p}
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the configuration in effect, with defaults and without secrets",
		Long: `Show the configuration in effect, as YAML: the file, the environment variables and
flags over it, and defaults filled in. A setting that has neither a value nor a
default is left out.

Secrets are shown as ***: what the references of the configuration and of the sinks mark
as secret, such as passwords in addresses, the paths of a webhook's URL, and all values
of headers, of a program's environment and of its arguments. Names are shown. Where a
value comes from a ${NAME} or a file:, the reference is shown and not the value.`,
		Example: `  waybill config show -c waybill.yaml`,
		Args:    noArguments,
		RunE:    s.run,
	}
	s.flags.add(cmd)
	cmd.Flags().BoolVar(&s.json, "json", false, "print the result as JSON")
	return cmd
}

type show struct {
	*invocation
	flags sourceFlags
	json  bool
}

func (s *show) run(cmd *cobra.Command, _ []string) error {
	source, err := s.fileSource(cmd, s.flags)
	if err != nil {
		return err
	}
	text, err := config.Show(source, s.options)
	if err != nil {
		return err
	}
	if !s.json {
		_, err = fmt.Fprintf(s.stdout, "%s", text)
		return err
	}
	var shown any
	if err := yaml.Unmarshal(text, &shown); err != nil {
		return fmt.Errorf("read what is shown: %w", err)
	}
	return printJSON(s.stdout, shown)
}
