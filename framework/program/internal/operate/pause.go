package operate

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

func newPause(p *command.Invocation) *cobra.Command {
	return newPausing(p, "pause", &cobra.Command{
		Use:   "pause SINK…",
		Short: "Stop deliveries to sinks until they are resumed",
		Long: `Pause sinks: forwarders start no more deliveries to them, and let those in flight end.
Forwarders that listen for NOTIFY react at once, others within a twentieth of their
lease. Nothing is lost: the log keeps what the sinks have not settled. Other sinks are
not affected.`,
		Example: `  waybill pause partner --reason OPS-7
  waybill pause --all`,
	})
}

func newResume(p *command.Invocation) *cobra.Command {
	return newPausing(p, "resume", &cobra.Command{
		Use:   "resume SINK…",
		Short: "Resume deliveries to paused sinks",
		Long: `Resume paused sinks: forwarders continue from their cursors, within a fifth of their
lease.`,
		Example: `  waybill resume partner
  waybill resume --all`,
	})
}

// pausing is the commands pause and resume.
type pausing struct {
	acting
	operation admin.Operation
	all       bool
	sinks     []string
	reason    string
}

func newPausing(p *command.Invocation, name string, cmd *cobra.Command) *cobra.Command {
	c := &pausing{}
	c.Invocation = p
	c.operation, _ = admin.Named(admin.OnSinks, name)
	cmd.Long += "\n\n" + command.NeedsDatabaseOnly
	cmd.RunE = c.run
	c.Add(cmd)
	cmd.Flags().BoolVar(&c.all, "all", false, "select all sinks")
	cmd.Flags().StringSliceVar(&c.sinks, "sink", nil, "name of a sink, as an argument; may be repeated")
	cmd.Flags().StringVar(&c.reason, "reason", "", "reason to record with the action")
	return cmd
}

func (c *pausing) run(cmd *cobra.Command, args []string) error {
	sinks := append(args, c.sinks...)
	switch {
	case len(sinks) == 0 && !c.all:
		return command.WrongUsage(cmd, errors.New("name a sink, or use --all"))
	case !utf8.ValidString(c.reason):
		return command.WrongUsage(cmd, errors.New("--reason is not UTF-8"))
	case len(sinks) > 0 && c.all:
		return command.WrongUsage(cmd, errors.New("--all selects all sinks: leave the names out"))
	}
	o, cleanup, err := c.open(cmd)
	if err != nil {
		return err
	}
	defer cleanup()
	if c.all {
		known, err := o.Sinks(cmd.Context())
		if err != nil {
			return err
		}
		for _, s := range known {
			if s.Paused == (c.operation.Name == "resume") && !strings.HasPrefix(s.Sink, "_") {
				sinks = append(sinks, s.Sink)
			}
		}
	}
	changed := []string{}
	if len(sinks) > 0 {
		did, err := o.For(admin.Request{Reason: c.reason}).Do(cmd.Context(), c.operation, sinks...)
		if err != nil {
			return err
		}
		changed = append(changed, did...)
	}
	if c.JSON {
		return command.PrintJSON(c.Stdout, map[string][]string{c.operation.Done: changed})
	}
	if len(sinks) == 0 {
		terminal.Println(c.Stdout, "no sink was "+c.operation.Done)
	}
	if len(changed) > 0 {
		terminal.Println(c.Stdout, c.operation.Done, strings.Join(changed, ", "))
	}
	for _, sink := range sinks {
		if !slices.Contains(changed, sink) {
			terminal.Println(c.Stdout, sink, c.operation.Unchanged)
		}
	}
	return nil
}
