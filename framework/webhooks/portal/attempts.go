package portal

import (
	"context"
	"html/template"
	"net/http"
	"net/url"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// attemptFilters are the parameters that select attempts.
var attemptFilters = []string{"outcome", "type", "since", "delivery"}

// attempts returns attempts at the endpoint of the path, the newest first, and the id after which older ones
// follow; "" if none does.
func (r *request) attempts(ctx context.Context, usual int) (found []store.Attempt, next string, err error) {
	limit, err := r.limit(usual)
	if err != nil {
		return nil, "", err
	}
	outcome := r.values.Get("outcome")
	q := store.AttemptQuery{
		Tenant: r.tenant, Endpoint: r.id, Type: r.values.Get("type"), Delivery: r.values.Get("delivery"), After: r.values.Get("after"), Limit: limit + 1,
		Failed: outcome == "failed", Succeeded: outcome == "succeeded",
	}
	if outcome != "" && !q.Failed && !q.Succeeded {
		return nil, "", problemOf(http.StatusBadRequest, "outcome is %q: use failed or succeeded", outcome)
	}
	if q.Since, err = moment("since", r.values.Get("since")); err != nil {
		return nil, "", err
	}
	found, err = r.endpoints.Attempts(ctx, q)
	if len(found) > limit {
		found, next = found[:limit], found[limit-1].ID
	}
	return found, next, err
}

// attemptsData are the attempts on the page of an endpoint.
type attemptsData struct {
	Rows     []store.Attempt
	Filter   url.Values
	Filtered bool
	First    bool
	Next     template.URL // the query of the next page; "" if there is none
}

func (r *request) attemptsData(ctx context.Context) (data attemptsData, err error) {
	data.Filter, data.First = r.values, r.values.Get("after") == ""
	rows, after, err := r.attempts(ctx, pageRows)
	next := url.Values{}
	for _, name := range attemptFilters {
		if value := r.values.Get(name); value != "" {
			next.Set(name, value)
		}
	}
	data.Rows, data.Filtered = rows, len(next) > 0
	if after != "" {
		next.Set("after", after)
		data.Next = template.URL(next.Encode()) //nolint:gosec // it is encoded
	}
	return data, err
}

func listAttempts(ctx context.Context, r *request) (any, error) {
	if _, err := r.endpoint(ctx); err != nil {
		return nil, err
	}
	found, next, err := r.attempts(ctx, usualRows)
	views := make([]attemptView, len(found))
	for i := range found {
		views[i] = viewOfAttempt(&found[i])
		views[i].Request, views[i].Answer = nil, nil
	}
	return listed("attempts", views, next), err
}

// attempt returns the attempt of the path.
func (r *request) attempt(ctx context.Context) (store.Attempt, error) {
	found, err := r.endpoints.Attempts(ctx, store.AttemptQuery{Tenant: r.tenant, ID: r.id, Limit: 1})
	if err == nil && len(found) == 0 {
		err = webhooks.ErrUnknown
	}
	if err != nil {
		return store.Attempt{}, err
	}
	return found[0], nil
}

// attemptData is the page of an attempt, or of a test, which has no ID. Back is the id of the endpoint.
type attemptData struct {
	store.Attempt
	Back string
}

// tested returns a test as an attempt.
func tested(a webhooks.Answer) store.Attempt {
	of := store.Attempt{At: a.At, Duration: a.Duration, Status: a.Status, Request: a.Request, Answer: a.Answer}
	if a.Err != nil {
		of.Error = webhooks.ForCustomer(a.Err)
	}
	return of
}

func getAttempt(ctx context.Context, r *request) (any, error) {
	a, err := r.attempt(ctx)
	return r.either(page{name: "attempt", data: attemptData{a, a.Endpoint}}, viewOfAttempt(&a)), err
}

func resend(ctx context.Context, r *request) (any, error) {
	a, err := r.attempt(ctx)
	if err == nil {
		err = r.endpoints.Resend(ctx, r.tenant, a.ID)
	}
	said := done{"Sent again", "The request is sent again in a moment, with the same id. Its next attempt then appears among the attempts.", a.Endpoint}
	return r.either(page{name: "done", data: said}, reply{status: http.StatusNoContent}), err
}
