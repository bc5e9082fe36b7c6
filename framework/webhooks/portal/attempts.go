package portal

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/sinks"
)

// attemptParameters filter the attempts at an endpoint.
var attemptParameters = []string{"outcome", "type", "since", "delivery", "after", "limit"}

// Outcomes of an attempt.
const (
	failed    = "failed"
	succeeded = "succeeded"
)

// attempts returns attempts at the endpoint of the path, the newest first, and the id after which older ones
// follow; "" if none does.
func (r *request) attempts(ctx context.Context, by url.Values, limit int) (found []store.Attempt, next string, err error) {
	q := store.AttemptQuery{
		Tenant: r.tenant, Endpoint: r.PathValue("id"), Type: by.Get("type"), Delivery: by.Get("delivery"), After: by.Get("after"), Limit: limit + 1,
		Failed: by.Get("outcome") == failed, Succeeded: by.Get("outcome") == succeeded,
	}
	if outcome := by.Get("outcome"); outcome != "" && !q.Failed && !q.Succeeded {
		return nil, "", problemOf(http.StatusBadRequest, "outcome is %q: use %s or %s", outcome, failed, succeeded)
	}
	if q.Since, err = moment("since", by.Get("since")); err != nil {
		return nil, "", err
	}
	found, err = r.endpoints.Attempts(ctx, q)
	if len(found) > limit {
		found = found[:limit]
		next = found[limit-1].ID
	}
	return found, next, err
}

// attempt returns the attempt of the path.
func (r *request) attempt(ctx context.Context) (store.Attempt, error) {
	found, err := r.endpoints.Attempts(ctx, store.AttemptQuery{Tenant: r.tenant, ID: r.PathValue("id"), Limit: 1})
	if err == nil && len(found) == 0 {
		err = webhooks.ErrUnknown
	}
	if err != nil {
		return store.Attempt{}, err
	}
	return found[0], nil
}

// tested returns a test as an attempt, which has no ID.
func tested(a webhooks.Answer) store.Attempt {
	of := store.Attempt{At: a.At, Duration: a.Duration, Status: a.Status, Request: a.Request, Answer: a.Answer}
	if a.Err != nil {
		of.Error = brief(a.Err)
	}
	return of
}

// brief returns an error as an attempt has it, without its class.
func brief(err error) string {
	if classed, ok := errors.AsType[*sinks.Error](err); ok && classed.Err != nil {
		err = classed.Err
	}
	return sinks.Brief(err)
}
