package operate

import (
	"errors"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

func newSchedules(p *command.Invocation) *cobra.Command {
	s := &schedules{looking: looking{command.Looking{Invocation: p}}}
	cmd := &cobra.Command{
		Use:   "schedules",
		Short: "List and change the schedules of the outbox",
		Long: `List the schedules that processes have run on this outbox: when each is due, its last
and next tick, and what happens to missed ticks. STATE shows whether a schedule is
paused, whether a tick was requested, and whether its tick is more than a minute late.
A late schedule either runs in no process any more, and waybill schedules forget removes
it from the list; or it fails, and the logs of its processes say why.

` + command.NeedsDatabaseOnly,
		Example: `  waybill schedules --database postgres://app@localhost/app`,
		Args:    command.NoSuchCommand,
		RunE:    s.run,
	}
	s.Add(cmd)
	cmd.AddCommand(
		newScheduleAction(p, "pause", "Pause a schedule",
			`Pause a schedule: its ticks pass without a notification, and are not made up for later.
The processes that run it react within five seconds.`),
		newScheduleAction(p, "resume", "Resume a paused schedule",
			`Resume a paused schedule: it continues with its next tick.`),
		newScheduleAction(p, "run", "Request an extra tick of a schedule now",
			`Request an extra tick of a schedule now, also if it is paused. A process that runs the
schedule makes it within five seconds. The regular ticks do not change.`),
		newScheduleAction(p, "forget", "Delete what the outbox keeps of a removed schedule",
			`Delete what the outbox keeps of a schedule that was removed from the configuration. A
schedule that a process still runs is listed again at once, and starts from now.`),
	)
	return cmd
}

type schedules struct{ looking }

// scheduleState returns the text of the column STATE.
func scheduleState(s admin.ScheduleView) string {
	state := ""
	add := func(is bool, text string) {
		if is && state != "" {
			state += ", "
		}
		if is {
			state += text
		}
	}
	add(s.Paused, "paused")
	add(!s.RequestedAt.IsZero(), "tick requested")
	add(s.Late, "late: does a process run it?")
	return command.OrDash(state)
}

func (s *schedules) run(cmd *cobra.Command, _ []string) error {
	o, cleanup, err := s.open(cmd)
	if err != nil {
		return err
	}
	defer cleanup()
	rows, err := o.Schedules(cmd.Context())
	if err != nil {
		return err
	}
	views := make([]admin.ScheduleView, len(rows))
	for i, row := range rows {
		views[i] = admin.ViewOfSchedule(row)
	}
	if s.JSON {
		return command.PrintJSON(s.Stdout, views)
	}
	if len(views) == 0 {
		terminal.Println(s.Stdout, "no schedules yet")
		return nil
	}
	t := command.NewTable(s.Stdout, "name", "when", "last tick", "next tick", "missed", "state")
	for _, v := range views {
		last := "-"
		if !v.LastTick.IsZero() {
			last = command.TimeText(v.LastTick)
		}
		t.AppendRow(table.Row{v.Name, command.OrDash(v.When), last, command.TimeText(v.NextTick), command.OrDash(v.Missed), scheduleState(v)})
	}
	t.Render()
	return nil
}

// scheduleAction is a command that changes one schedule.
type scheduleAction struct {
	acting
	operation admin.Operation
}

func newScheduleAction(p *command.Invocation, name, short, long string) *cobra.Command {
	a := &scheduleAction{}
	a.Invocation = p
	a.operation, _ = admin.Named(admin.OnSchedules, name)
	cmd := &cobra.Command{
		Use:     name + " NAME",
		Short:   short,
		Long:    long + "\n\n" + command.NeedsDatabaseOnly,
		Example: "  waybill schedules " + name + " daily-report",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return command.WrongUsage(cmd, errors.New("name a schedule"))
			}
			return command.NoArguments(cmd, args[1:])
		},
		RunE: a.run,
	}
	a.Add(cmd)
	return cmd
}

func (a *scheduleAction) run(cmd *cobra.Command, args []string) error {
	o, cleanup, err := a.open(cmd)
	if err != nil {
		return err
	}
	defer cleanup()
	changed, err := o.Do(cmd.Context(), a.operation, args[0])
	switch {
	case err != nil:
		return err
	case a.JSON:
		return command.PrintJSON(a.Stdout, map[string]any{"schedule": args[0], "changed": len(changed) > 0})
	case len(changed) > 0:
		terminal.Println(a.Stdout, a.operation.Done, args[0])
	default:
		terminal.Println(a.Stdout, args[0], a.operation.Unchanged)
	}
	return nil
}
