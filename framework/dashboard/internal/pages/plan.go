package pages

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	// planExamples is how many deliveries a plan shows.
	planExamples = 5
	// planTime limits how long a plan may count.
	planTime = 6 * time.Second
	// typedAbove is the number above which the user must type the number to confirm.
	typedAbove = 100
)

// planForm is the form of an act: on the selected deliveries, or on all that match the filter.
type planForm struct {
	parkedForm
	Act      string
	Selected []string
	// About explains the act.
	About string
}

func readPlanForm(v url.Values) (planForm, error) {
	f := planForm{parkedForm: readParkedForm(v), Act: v.Get("act"), Selected: v["selected"]}
	if all := v.Get("all"); all != "" {
		f.Act, f.Selected = all, nil
	} else if len(f.Selected) == 0 {
		return f, problem{http.StatusBadRequest, "nothing is selected: go back and select at least one delivery"}
	}
	o, known := admin.Named(admin.OnDeliveries, f.Act)
	if f.About = o.About; !known || f.About == "" { // the pages of sinks have the others
		return f, problem{http.StatusBadRequest, "there is no such act"}
	}
	return f, nil
}

// plan counts exactly what the act would change. It fails if that takes longer than planTime.
func (f planForm) plan(ctx context.Context, a *admin.Admin, pin time.Time) (*admin.Plan, error) {
	counting, cancel := context.WithTimeout(ctx, planTime)
	defer cancel()
	p, err := f.newPlan(counting, a, pin)
	if err != nil && ctx.Err() == nil && counting.Err() != nil {
		err = problem{http.StatusGatewayTimeout, fmt.Sprintf("Nothing was changed: counting the matches takes longer than %s. "+
			"Narrow the filter, such as to one sink, or run waybill parked %s, which has no time limit.", planTime, f.Act)}
	}
	return p, err
}

// newPlan returns a plan for the selected deliveries, or for the filter if none is selected.
func (f planForm) newPlan(ctx context.Context, a *admin.Admin, pin time.Time) (*admin.Plan, error) {
	var filter admin.Filter
	if len(f.Selected) > 0 {
		for _, text := range f.Selected {
			place, err := readPlace(text)
			if err != nil {
				return nil, err
			}
			filter.Selected = append(filter.Selected, place)
		}
	} else {
		var err error
		if filter, err = f.filter(); err != nil {
			return nil, err
		}
	}
	filter.PlannedAt = pin
	if f.Act == "skip" && f.State == string(store.StateDead) {
		filter.States = nil // skip is always about dead deliveries, and its filter must not name states
	}
	p, err := a.Plan(ctx, admin.Task{Operation: f.Act, Filter: filter})
	plan, _ := p.(*admin.Plan)
	return plan, err
}

// planPage is the data of the page that shows a plan and asks for confirmation.
type planPage struct {
	planForm
	Counts   []store.ParkedCount
	Total    int64
	Examples []parkedRow
	// PlannedAt is the time of the plan. Deliveries parked or changed later are not affected.
	PlannedAt string
	// Typed says that the user must type the number.
	Typed bool
	// More says that there may be further deliveries of the filter's cause.
	More bool
	// Problem is why the plan is shown again instead of run.
	Problem string
}

// Others returns how many of the selected deliveries the act does not apply to.
func (p planPage) Others() int64 { return max(0, int64(len(p.Selected))-p.Total) }

func (f planForm) page(ctx context.Context, p *admin.Plan) (planPage, error) {
	page := planPage{planForm: f, Counts: p.Counts, Total: p.Total(), More: p.More, PlannedAt: p.PlannedAt().Format(time.RFC3339Nano)}
	page.Typed = page.Total > typedAbove
	examples, err := p.Examples(ctx, planExamples)
	page.Examples = parkedRows(examples)
	return page, err
}

// plan shows the plan of an act.
func plan(ctx context.Context, r *request) (any, error) {
	f, err := readPlanForm(r.PostForm)
	if err != nil {
		return nil, err
	}
	p, err := f.plan(ctx, r.Admin, time.Time{})
	if err != nil {
		return nil, err
	}
	return f.page(ctx, p)
}

// act runs a plan if its count has not grown and the user has typed the number. A form that is
// sent twice acts once, since the plan excludes deliveries that changed after it.
func act(ctx context.Context, r *request) (any, error) {
	f, err := readPlanForm(r.PostForm)
	if err != nil {
		return nil, err
	}
	pin, pinErr := time.Parse(time.RFC3339Nano, r.PostForm.Get("planned_at"))
	expect, expectErr := strconv.ParseInt(r.PostForm.Get("expect"), 10, 64)
	if pinErr != nil || expectErr != nil || pin.IsZero() {
		return nil, problem{http.StatusBadRequest, "the form does not identify its plan: start again"}
	}
	p, err := f.plan(ctx, r.Admin, pin)
	if err != nil {
		return nil, err
	}
	if expect > typedAbove && !r.typed(expect) {
		return f.again(ctx, p, http.StatusUnprocessableEntity, fmt.Sprintf("Nothing was changed: type the number %d.", expect))
	}
	switch total := p.Total(); {
	case total == 0:
		return f.again(ctx, p, http.StatusConflict, "Nothing was changed: no delivery of this plan is left. Perhaps it has already run.")
	case total > expect:
		if p, err = f.plan(ctx, r.Admin, time.Time{}); err != nil {
			return nil, err
		}
		return f.again(ctx, p, http.StatusConflict, "Nothing was changed: more deliveries match now. This is the new plan.")
	}
	action, err := r.Acts.Start(ctx, p)
	if err != nil {
		return nil, err
	}
	return goTo{path: "/actions/" + url.PathEscape(action.ID)}, nil
}

// typed reports whether the user has typed the expected number.
func (r *request) typed(expect int64) bool {
	n, err := number(r.PostForm, "typed")
	return err == nil && n == expect
}

// again shows a plan again, with the reason.
func (f planForm) again(ctx context.Context, p *admin.Plan, status int, why string) (any, error) {
	page, err := f.page(ctx, p)
	page.Problem = why
	return answer{status: status, data: page}, err
}
