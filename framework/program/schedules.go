package program

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

func newSchedules(p *invocation) *cobra.Command {
	s := &schedules{looking: looking{invocation: p}}
	cmd := &cobra.Command{
		Use:   "schedules",
		Short: "List the schedules of the outbox and act on them",
		Long: `List the schedules that processes have run on this outbox: when each is due, its last
and its next tick, and what becomes of missed ones. STATE shows what is paused, a tick that
was asked for, and a schedule whose tick is more than a minute late: either no process runs
it any more, and waybill schedules forget takes it from the list, or its log says why.

It reads the keys database and outbox only; with --database, or WAYBILL_DATABASE,
no file is needed.`,
		Args: noSuchCommand,
		RunE: s.run,
	}
	s.add(cmd)
	cmd.AddCommand(
		newScheduleAction(p, "pause", (*admin.Admin).PauseSchedule, "paused", "was paused already",
			"Let the ticks of a schedule pass without a notification",
			`Pause a schedule: processes that run it let its ticks pass without a notification,
within five seconds. What passes is not made up for later.`),
		newScheduleAction(p, "resume", (*admin.Admin).ResumeSchedule, "resumed", "was not paused",
			"Have the ticks of a paused schedule made again",
			`Resume a schedule that was paused: it goes on with its next tick.`),
		newScheduleAction(p, "run", (*admin.Admin).RunSchedule, "asked for a tick of", "was asked for a tick already",
			"Have one tick of a schedule made now",
			`Ask for a tick of a schedule now, beside the others, also if it is paused. A process
that runs the schedule makes it within five seconds.`),
		newScheduleAction(p, "forget", forgetSchedule, "forgot", "",
			"Delete what the outbox keeps of a removed schedule",
			`Forget a schedule that was taken out of the configuration. One that a process still
runs is there again at once, and begins from now.`),
	)
	return cmd
}

type schedules struct{ looking }

// scheduleView is a schedule as people see it.
type scheduleView struct {
	Name        string    `json:"name"`
	When        string    `json:"when"`
	Missed      string    `json:"missed"`
	LastTick    time.Time `json:"last_tick,omitzero"`
	NextTick    time.Time `json:"next_tick"`
	RequestedAt time.Time `json:"requested_at,omitzero"`
	Paused      bool      `json:"paused"`
	// Late says that a tick is due and was not made for more than a minute.
	Late bool `json:"late"`
}

func viewOfSchedule(s store.Schedule) scheduleView {
	return scheduleView{
		Name: s.Name, When: s.Spec, Missed: s.Missed, LastTick: s.LastTick, NextTick: s.NextTick, RequestedAt: s.RequestedAt,
		Paused: s.Paused, Late: s.Late(),
	}
}

func (s scheduleView) state() string {
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
	add(!s.RequestedAt.IsZero(), "a tick is asked for")
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
	views := make([]scheduleView, len(rows))
	for i, row := range rows {
		views[i] = viewOfSchedule(row)
	}
	if s.json {
		return printJSON(s.stdout, views)
	}
	if len(views) == 0 {
		fmt.Fprintln(s.stdout, "no schedules yet")
		return nil
	}
	t := newTable(s.stdout, "name", "when", "last tick", "next tick", "missed", "state")
	for _, v := range views {
		last := "-"
		if !v.LastTick.IsZero() {
			last = timeText(v.LastTick)
		}
		t.AppendRow(table.Row{v.Name, orDash(v.When), last, timeText(v.NextTick), orDash(v.Missed), v.state()})
	}
	t.Render()
	return nil
}

// scheduleAction is what people do to one schedule.
type scheduleAction struct {
	acting
	act       func(a *admin.Admin, ctx context.Context, name string) (changed bool, err error)
	done, not string
}

func newScheduleAction(p *invocation, verb string, act func(a *admin.Admin, ctx context.Context, name string) (bool, error), done, not, short, long string) *cobra.Command {
	a := &scheduleAction{acting: acting{looking: looking{invocation: p}}, act: act, done: done, not: not}
	cmd := &cobra.Command{
		Use:     verb + " NAME",
		Short:   short,
		Long:    long,
		Example: "  waybill schedules " + verb + " daily-report",
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
	changed, err := a.act(o.Admin, cmd.Context(), args[0])
	switch {
	case err != nil:
		return err
	case a.json:
		return printJSON(a.stdout, map[string]any{"schedule": args[0], "changed": changed})
	case changed:
		fmt.Fprintln(a.stdout, a.done, args[0])
	default:
		fmt.Fprintln(a.stdout, args[0], a.not)
	}
	return nil
}

func forgetSchedule(a *admin.Admin, ctx context.Context, name string) (bool, error) {
	return true, a.ForgetSchedule(ctx, name)
}
