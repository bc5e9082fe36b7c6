package pages

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

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

func askAboutSchedule(ctx context.Context, r *request) (any, error) {
	o, err := r.onSchedule()
	if err != nil {
		return nil, err
	}
	all, err := r.Admin.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	if !slices.ContainsFunc(all, func(s store.Schedule) bool { return s.Name == name }) {
		return nil, fmt.Errorf("%w %q", store.ErrUnknownSchedule, cut(name, 100))
	}
	return confirm(o, name, "/schedules/"+url.PathEscape(name), "/schedules"), nil
}

func actOnSchedule(ctx context.Context, r *request) (any, error) {
	o, err := r.onSchedule()
	if err == nil {
		_, err = r.Admin.Do(ctx, o, r.PathValue("name"))
	}
	return goTo{path: "/schedules"}, err
}

// onSchedule returns the operation in the path.
func (r *request) onSchedule() (admin.Operation, error) {
	o, known := admin.Named(admin.OnSchedules, r.PathValue("act"))
	if !known {
		return o, problem{http.StatusNotFound, "there is no such act: use " + admin.Names(admin.OnSchedules)}
	}
	return o, nil
}
