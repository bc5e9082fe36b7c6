package operate

import (
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

func newSchedules(p *command.Invocation) *cobra.Command {
	s := lookingFor(p)
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.inOne(cmd, func(o *operator) (command.Look, error) {
				rows, err := o.Schedules(cmd.Context())
				views := make([]admin.ScheduleView, len(rows))
				for i, row := range rows {
					views[i] = admin.ViewOfSchedule(row)
				}
				return command.Look{View: views, Print: func(w io.Writer) { printSchedules(w, views) }}, err
			})
		},
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

func printSchedules(w io.Writer, views []admin.ScheduleView) {
	if len(views) == 0 {
		terminal.Println(w, "no schedules yet")
		return
	}
	t := command.NewTable(w, "name", "when", "last tick", "next tick", "missed", "state")
	for _, v := range views {
		t.AppendRow(table.Row{v.Name, command.OrDash(v.When), command.TimeOrDash(v.LastTick), command.TimeText(v.NextTick), command.OrDash(v.Missed), scheduleState(v)})
	}
	t.Render()
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
		Args:    command.Arguments(1, "name a schedule"),
		RunE:    a.run,
	}
	a.Add(cmd)
	return cmd
}

func (a *scheduleAction) run(cmd *cobra.Command, args []string) error {
	return a.inOne(cmd, func(o *operator) (command.Look, error) {
		changed, err := o.Do(cmd.Context(), a.operation, args[0])
		return command.Look{View: map[string]any{"schedule": args[0], "changed": len(changed) > 0}, Print: func(w io.Writer) {
			if len(changed) > 0 {
				terminal.Println(w, a.operation.Done, args[0])
			} else {
				terminal.Println(w, args[0], a.operation.Unchanged)
			}
		}}, err
	})
}
