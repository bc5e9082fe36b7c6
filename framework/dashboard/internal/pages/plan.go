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
	// planTime bounds the counting of a plan.
	planTime = 6 * time.Second
	// typedAbove is the number above which it has to be typed.
	typedAbove = 100
)

// planActs are the acts on parked deliveries, and what each does in words.
var planActs = map[string]string{
	"requeue": "They are tried again at once, with all their attempts. Of several dead ones of one key the first goes, and the others follow it in their order.",
	"discard": "They are deleted and never delivered. This cannot be undone.",
	"skip":    "The dead heads of keys are deleted and never delivered, so that what waits behind them goes on. This cannot be undone.",
}

// planForm is an act that is asked for.
type planForm struct {
	parkedForm
	Act      string
	Selected []string
}

// readPlanForm reads the act: on what is selected, or on all that match.
func readPlanForm(v url.Values) (planForm, error) {
	f := planForm{parkedForm: readParkedForm(v), Act: v.Get("act"), Selected: v["selected"]}
	if all := v.Get("all"); all != "" {
		f.Act, f.Selected = all, nil
	} else if len(f.Selected) == 0 {
		return f, problem{http.StatusBadRequest, "nothing is selected: go back and tick some"}
	}
	if planActs[f.Act] == "" {
		return f, problem{http.StatusBadRequest, "there is no such act"}
	}
	return f, nil
}

// plan plans the act, for no longer than planTime: it counts exactly.
func (f planForm) plan(ctx context.Context, a *admin.Admin, pin time.Time) (*admin.Plan, error) {
	counting, cancel := context.WithTimeout(ctx, planTime)
	defer cancel()
	p, err := f.make(counting, a, pin)
	if err != nil && ctx.Err() == nil && counting.Err() != nil {
		err = problem{http.StatusGatewayTimeout, fmt.Sprintf("Nothing was done: to count what matches takes longer than %s. "+
			"Ask for less at once, such as one sink, or use waybill parked %s, which takes the time it needs.", planTime, f.Act)}
	}
	return p, err
}

// make makes the plan. What is selected is selected by name alone.
func (f planForm) make(ctx context.Context, a *admin.Admin, pin time.Time) (*admin.Plan, error) {
	filter := admin.Filter{}
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
	switch f.Act {
	case "requeue":
		return a.Requeue(ctx, filter)
	case "discard":
		return a.Discard(ctx, filter)
	}
	if f.State == string(store.StateDead) {
		filter.States = nil // which skip is about
	}
	return a.Skip(ctx, filter)
}

// planPage is what is asked before an act.
type planPage struct {
	planForm
	Words    string
	Counts   []store.ParkedCount
	Total    int64
	Examples []parkedRow
	// PlannedAt pins the plan.
	PlannedAt string
	// Typed says that the number must be typed.
	Typed bool
	// Problem is why the plan is shown again.
	Problem string
}

// Others is how many of those that are selected the act is not about.
func (p planPage) Others() int64 { return max(0, int64(len(p.Selected))-p.Total) }

func (f planForm) page(ctx context.Context, p *admin.Plan) (planPage, error) {
	page := planPage{planForm: f, Words: planActs[f.Act], Counts: p.Counts, Total: p.Total(), PlannedAt: p.PlannedAt().Format(time.RFC3339Nano)}
	page.Typed = page.Total > typedAbove
	examples, err := p.Examples(ctx, planExamples)
	page.Examples = parkedRows(examples)
	return page, err
}

// plan is the page that an act begins with.
func plan(ctx context.Context, r *request) (any, error) {
	f, err := r.planForm()
	if err != nil {
		return nil, err
	}
	p, err := f.plan(ctx, r.Admin, time.Time{})
	if err != nil {
		return nil, err
	}
	return f.page(ctx, p)
}

// planForm reads the form of an operator.
func (r *request) planForm() (planForm, error) {
	if err := r.operates(); err != nil {
		return planForm{}, err
	}
	return readPlanForm(r.PostForm)
}

// act does what was planned, if it is no more than that and the number is typed. A form that is
// sent twice does nothing twice: what the first has changed is not in the plan of the second.
func act(ctx context.Context, r *request) (any, error) {
	f, err := r.planForm()
	if err != nil {
		return nil, err
	}
	pin, pinErr := time.Parse(time.RFC3339Nano, r.PostForm.Get("planned_at"))
	expect, expectErr := strconv.ParseInt(r.PostForm.Get("expect"), 10, 64)
	if pinErr != nil || expectErr != nil || pin.IsZero() {
		return nil, problem{http.StatusBadRequest, "the form does not say what was planned: plan it again"}
	}
	p, err := f.plan(ctx, r.Admin, pin)
	if err != nil {
		return nil, err
	}
	if expect > typedAbove && !r.typed(expect) {
		return f.again(ctx, p, http.StatusUnprocessableEntity, fmt.Sprintf("Nothing was done: type the number %d.", expect))
	}
	switch total := p.Total(); {
	case total == 0:
		return f.again(ctx, p, http.StatusConflict, "Nothing was done: nothing is left of this plan. Perhaps it has run already.")
	case total > expect:
		if p, err = f.plan(ctx, r.Admin, time.Time{}); err != nil {
			return nil, err
		}
		return f.again(ctx, p, http.StatusConflict, "Nothing was done: there are more than were planned. This is what there is now.")
	}
	action, err := r.Acts.Start(ctx, p)
	if err != nil {
		return nil, err
	}
	return goTo{path: "/actions/" + url.PathEscape(action.ID)}, nil
}

// typed reports whether the form has the number that was to be typed.
func (r *request) typed(expect int64) bool {
	n, err := number(r.PostForm, "typed")
	return err == nil && n == expect
}

// again shows a plan once more, with the reason.
func (f planForm) again(ctx context.Context, p *admin.Plan, status int, why string) (any, error) {
	page, err := f.page(ctx, p)
	page.Problem = why
	return answer{status: status, data: page}, err
}
