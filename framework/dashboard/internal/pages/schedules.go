package pages

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

// scheduleRow is a schedule in the list.
type scheduleRow struct {
	store.Schedule
	// Published is the id of the last tick's notification; "" before the first tick.
	Published string
}

func schedules(ctx context.Context, r *request) (any, error) {
	all, err := r.Admin.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	rows := make([]scheduleRow, len(all))
	for i, s := range all {
		rows[i].Schedule = s
		if !s.LastTick.IsZero() {
			rows[i].Published = s.NotificationID(s.LastTick)
		}
	}
	return struct{ Schedules []scheduleRow }{rows}, nil
}

// scheduleAct is an act on a schedule.
type scheduleAct struct {
	Name, Verb, What string
	Danger           bool
	do               func(a *admin.Admin, ctx context.Context, name string) (bool, error)
}

var scheduleActs = []scheduleAct{
	{Verb: "run", What: "A process that runs the schedule makes an extra tick within five seconds, even if the schedule is paused.", do: (*admin.Admin).RunSchedule},
	{Verb: "pause", What: "The schedule makes no ticks until you resume it, and does not catch up on them later.", do: (*admin.Admin).PauseSchedule},
	{Verb: "resume", What: "The schedule continues with its next tick.", do: (*admin.Admin).ResumeSchedule},
	{
		Verb: "forget", Danger: true, do: func(a *admin.Admin, ctx context.Context, name string) (bool, error) {
			return true, a.ForgetSchedule(ctx, name)
		},
		What: "The outbox deletes the state of this schedule. Do this for a schedule that is no longer in any configuration: if a process still runs it, it starts again from now.",
	},
}

func askAboutSchedule(ctx context.Context, r *request) (any, error) {
	if err := r.requireOperator(); err != nil {
		return nil, err
	}
	all, err := r.Admin.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	act, err := r.scheduleAct()
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.Name == act.Name {
			return confirmation{
				Heading: capital(act.Verb), Name: act.Name, What: act.What, Button: capital(act.Verb), Danger: act.Danger,
				Path: "/schedules/" + url.PathEscape(act.Name) + "/" + act.Verb, Back: "/schedules",
			}, nil
		}
	}
	return nil, fmt.Errorf("%w %q", store.ErrUnknownSchedule, cut(act.Name, 100))
}

func actOnSchedule(ctx context.Context, r *request) (any, error) {
	if err := r.requireOperator(); err != nil {
		return nil, err
	}
	act, err := r.scheduleAct()
	if err == nil {
		_, err = act.do(r.Admin, ctx, act.Name)
	}
	return goTo{path: "/schedules"}, err
}

func (r *request) scheduleAct() (scheduleAct, error) {
	for _, act := range scheduleActs {
		if act.Verb == r.PathValue("act") {
			act.Name = r.PathValue("name")
			return act, nil
		}
	}
	return scheduleAct{}, problem{http.StatusNotFound, "there is no such act: use run, pause, resume or forget"}
}
