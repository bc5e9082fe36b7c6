package program

import (
	"errors"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

func newSchedules(p *invocation) *cobra.Command {
	s := &schedules{looking: looking{invocation: p}}
	cmd := &cobra.Command{
		Use:   "schedules",
		Short: "List and change the schedules of the outbox",
		Long: `List the schedules that processes have run on this outbox: when each is due, its last
and next tick, and what happens to missed ticks. STATE shows whether a schedule is
paused, whether a tick was requested, and whether its tick is more than a minute late.
A late schedule either runs in no process any more, and waybill schedules forget removes
it from the list; or it fails, and the logs of its processes say why.

` + needsDatabaseOnly,
		Example: `  waybill schedules --database postgres://app@localhost/app`,
		Args:    noSuchCommand,
		RunE:    s.run,
	}
	s.add(cmd)
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
	return orDash(state)
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
	if s.json {
		return printJSON(s.stdout, views)
	}
	if len(views) == 0 {
		terminal.Println(s.stdout, "no schedules yet")
		return nil
	}
	t := newTable(s.stdout, "name", "when", "last tick", "next tick", "missed", "state")
	for _, v := range views {
		last := "-"
		if !v.LastTick.IsZero() {
			last = timeText(v.LastTick)
		}
		t.AppendRow(table.Row{v.Name, orDash(v.When), last, timeText(v.NextTick), orDash(v.Missed), scheduleState(v)})
	}
	t.Render()
	return nil
}

// scheduleAction is a command that changes one schedule.
type scheduleAction struct {
	acting
	operation admin.Operation
}

func newScheduleAction(p *invocation, name, short, long string) *cobra.Command {
	a := &scheduleAction{}
	a.invocation = p
	a.operation, _ = admin.Named(admin.OnSchedules, name)
	cmd := &cobra.Command{
		Use:     name + " NAME",
		Short:   short,
		Long:    long + "\n\n" + needsDatabaseOnly,
		Example: "  waybill schedules " + name + " daily-report",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return wrongUsage(cmd, errors.New("name a schedule"))
			}
			return noArguments(cmd, args[1:])
		},
		RunE: a.run,
	}
	a.add(cmd)
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
	case a.json:
		return printJSON(a.stdout, map[string]any{"schedule": args[0], "changed": len(changed) > 0})
	case len(changed) > 0:
		terminal.Println(a.stdout, a.operation.Done, args[0])
	default:
		terminal.Println(a.stdout, args[0], a.operation.Unchanged)
	}
	return nil
}
