package program

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/operate"
	"github.com/waybill-go/waybill/framework/program/internal/tool"
)

func newMCP(p *command.Invocation) *cobra.Command {
	m := &assistance{Looking: command.Looking{Invocation: p}}
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve tools for assistants, by the Model Context Protocol over stdin and stdout",
		Long: `Serve tools with which an assistant looks at the outbox: status, why, parked, log, types,
doctor and config_check. The assistant's program starts the command and speaks the Model
Context Protocol over its stdin and stdout; logs go to stderr. It ends with stdin, or on
SIGINT or SIGTERM. A configuration of such a program is:

    {"mcpServers": {"waybill": {"command": "waybill", "args": ["mcp", "-c", "waybill.yaml"]}}}

The tools answer with the JSON of the commands. They never show payloads, and secrets of
the configuration are shown as ***. Answers are bounded, and characters that a terminal
would obey are escaped.

Without --allow-acts no tool changes the outbox. With it there are two more: plan counts
what an operation would change, and act does it, unless the count differs from the planned
one. The operations are requeue, discard, skip, reroute, pause and resume. waybill actions
shows them under the user's name with (mcp) behind it.

The database is opened by the first call that needs it; if that fails, the call fails and
the next one tries again. Restart the command after a change of routes.`,
		Example: `  waybill mcp -c waybill.yaml
  waybill mcp -c waybill.yaml --allow-acts --by ada`,
		Args: command.NoArguments,
		RunE: m.run,
	}
	m.Flags.Add(cmd)
	m.Flags.AddIn(cmd)
	cmd.Flags().BoolVar(&m.acts, "allow-acts", false, "add the tools plan and act, which change the outbox")
	cmd.Flags().StringVar(&m.by, "by", "", "name to record actions under, with (mcp) behind it (default: the user of this machine)")
	return cmd
}

// assistance is the command mcp.
type assistance struct {
	command.Looking
	acts bool
	by   string
}

func (m *assistance) run(cmd *cobra.Command, _ []string) error {
	server := mcp.NewServer(&mcp.Implementation{Name: m.Name, Version: readBuild(m.Name).Version}, &mcp.ServerOptions{
		Instructions: "Waybill is a transactional outbox: it delivers notifications from a log in a database to sinks. Begin with status; why explains one notification.",
		Capabilities: &mcp.ServerCapabilities{},
	})
	server.AddReceivingMiddleware(tool.Explain)
	tools := operate.NewTools(m.Looking, cmd, m.by)
	defer tools.Close()
	tools.AddTo(server, m.acts)
	tool.Add(server, "doctor", "Check the database and the configuration for problems, as waybill doctor: each finding has a status and a fix. It connects to the sinks; skip the check sinks to avoid that.", tool.Kind{Reaches: true},
		func(ctx context.Context, in doctorArguments) (any, error) { return m.doctor(ctx, cmd, in) })
	tool.Add(server, "config_check", "Report all mistakes in the configuration, and with reach whether its sinks can be reached, as waybill config check.", tool.Kind{Reaches: true},
		func(ctx context.Context, in checkArguments) (any, error) { return m.check(ctx, cmd, in) })
	err := server.Run(cmd.Context(), &mcp.IOTransport{Reader: io.NopCloser(cmd.InOrStdin()), Writer: unclosed{m.Raw}})
	if cmd.Context().Err() != nil {
		return nil // a signal is how it ends
	}
	return err
}

// unclosed is stdout, which the transport does not close.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

type doctorArguments struct {
	Only []string `json:"only,omitempty" jsonschema:"run only the checks with these ids"`
	Skip []string `json:"skip,omitempty" jsonschema:"skip the checks with these ids"`
}

func (m *assistance) doctor(ctx context.Context, cmd *cobra.Command, in doctorArguments) (any, error) {
	checks := doctor.Options{Only: in.Only, Skip: in.Skip, Timeout: doctor.DefaultTimeout, HeldAfter: doctor.DefaultHeldAfter}
	if err := checks.Validate(); err != nil {
		return nil, fmt.Errorf("only or skip: %w", err)
	}
	source, err := m.One(cmd, m.Flags)
	if err != nil {
		return nil, err
	}
	findings, err := examineOutbox(ctx, m.Invocation, source, "", checks)
	return map[string][]doctor.Finding{"findings": findings}, err
}

type checkArguments struct {
	Reach bool `json:"reach,omitempty" jsonschema:"also connect to the sinks; a process sink's program is started and ended"`
	Show  bool `json:"show,omitempty" jsonschema:"also show the configuration in effect, with secrets as ***"`
}

// checked is the answer of the tool config_check.
type checked struct {
	checkView
	Configuration any `json:"configuration,omitempty"`
}

func (m *assistance) check(ctx context.Context, cmd *cobra.Command, in checkArguments) (any, error) {
	source, err := m.FileSource(cmd, m.Flags)
	if err != nil {
		return nil, err
	}
	loaded, err := config.Load(source, m.Options)
	if view, mistaken := viewOfMistakes(err); mistaken {
		return view, nil
	}
	if err != nil {
		return nil, err
	}
	c := check{Invocation: m.Invocation, timeout: 5 * time.Second, offline: !in.Reach}
	found := checked{checkView: checkView{Mistakes: []mistakeView{}, Sinks: c.askAll(ctx, loaded)}}
	if in.Show {
		text, err := config.Show(source, m.Options)
		if err != nil {
			return nil, err
		}
		found.Configuration, err = shownAsJSON(text)
		return found, err
	}
	return found, nil
}
