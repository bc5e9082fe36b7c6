package program

import (
	"fmt"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/program/internal/command"
)

func newShow(p *command.Invocation) *cobra.Command {
	s := &show{Invocation: p}
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the configuration in effect, with defaults and without secrets",
		Long: `Show the configuration in effect as YAML: the file, with environment variables and flags
applied and defaults filled in. Settings with neither a value nor a default are left out.

Secrets are shown as ***: the keys that the references mark as secret, passwords in
addresses, the path of a webhook's URL, and all values of headers and of a program's
environment and arguments. A value that comes from ${NAME} or file: is shown as that
reference.`,
		Example: `  waybill config show -c waybill.yaml`,
		Args:    command.NoArguments,
		RunE:    s.run,
	}
	s.flags.Add(cmd)
	cmd.Flags().BoolVar(&s.json, "json", false, "print the result as JSON")
	return cmd
}

type show struct {
	*command.Invocation
	flags command.SourceFlags
	json  bool
}

func (s *show) run(cmd *cobra.Command, _ []string) error {
	source, err := s.FileSource(cmd, s.flags)
	if err != nil {
		return err
	}
	text, err := config.Show(source, s.Options)
	if err != nil {
		return err
	}
	if !s.json {
		_, err = fmt.Fprintf(s.Stdout, "%s", text)
		return err
	}
	shown, err := shownAsJSON(text)
	if err != nil {
		return err
	}
	return command.PrintJSON(s.Stdout, shown)
}

// shownAsJSON returns what config.Show returns for JSON.
func shownAsJSON(text []byte) (shown any, err error) {
	if err := yaml.Unmarshal(text, &shown); err != nil {
		return nil, fmt.Errorf("convert the configuration to JSON: %w", err)
	}
	return shown, nil
}
