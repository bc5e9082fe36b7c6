// Package endpoint has what operators do to endpoints of customers and see of them, which the command line, the
// pages and the API share. Package webhooks manages the endpoints.
package endpoint

import (
	"context"
	"maps"
	"slices"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// SinkOf returns the sink of kind webhooks, and its name; nil if there is none.
func SinkOf(sinks map[string]forwarder.Sink) (*webhooks.Sink, string) {
	for _, name := range slices.Sorted(maps.Keys(sinks)) {
		if sink, is := sinks[name].Sink.(*webhooks.Sink); is {
			return sink, name
		}
	}
	return nil, ""
}

// Operation is something that operators do to one endpoint.
type Operation struct {
	admin.Operation
	do func(ctx context.Context, all *webhooks.Endpoints, at *webhooks.Endpoint, reason string) (Outcome, error)
}

// Outcome is what an operation has done.
type Outcome struct {
	Endpoint webhooks.Endpoint
	// Unchanged says that there was nothing to do.
	Unchanged bool
	// Secret is the new secret of the operation rotate, which is shown only once.
	Secret string
	// Answer is what the endpoint has answered to the operation test; nil for others.
	Answer *webhooks.Answer
}

// Recover delivers again what is dead at an endpoint. It is planned and run as operations on deliveries are: see
// [webhooks.Endpoints.PlanRecovery].
var Recover = admin.Operation{
	Name: "recover", Done: "recovered",
	About: "These deliveries are tried again at once, with all their attempts, in the order of their keys.",
}

// Operations are the others.
var Operations = []Operation{
	{
		admin.Operation{
			Name: "enable", Done: "enabled", Unchanged: "is enabled already",
			About: "The endpoint gets notifications again, but nothing of what its tenant got meanwhile. What was sent to it and is dead can then be recovered.",
		},
		func(ctx context.Context, all *webhooks.Endpoints, at *webhooks.Endpoint, _ string) (Outcome, error) {
			if at.Enabled() {
				return Outcome{Endpoint: *at, Unchanged: true}, nil
			}
			e, err := all.Enable(ctx, at.Tenant, at.ID)
			return Outcome{Endpoint: e}, err
		},
	},
	{
		admin.Operation{
			Name: "disable", Done: "disabled", Unchanged: "is disabled already", Danger: true,
			About: "The endpoint gets nothing until someone enables it, and nothing of that time later. What it has not got yet becomes dead, and can be recovered.",
		},
		func(ctx context.Context, all *webhooks.Endpoints, at *webhooks.Endpoint, reason string) (Outcome, error) {
			if !at.Enabled() {
				return Outcome{Endpoint: *at, Unchanged: true}, nil
			}
			if reason != "" {
				reason = store.DisabledByPerson + ": " + reason
			}
			e, err := all.Disable(ctx, at.Tenant, at.ID, reason)
			return Outcome{Endpoint: e}, err
		},
	},
	{
		admin.Operation{
			Name: "rotate", Done: "rotated the secret of",
			About: "The endpoint gets a new secret. The old one signs as well until secret_overlap is over.",
		},
		func(ctx context.Context, all *webhooks.Endpoints, at *webhooks.Endpoint, _ string) (Outcome, error) {
			e, secret, err := all.Rotate(ctx, at.Tenant, at.ID)
			return Outcome{Endpoint: e, Secret: secret}, err
		},
	},
	{
		admin.Operation{
			Name: "test", Done: "tested",
			About: "The endpoint gets a test at once, whether it is enabled or not.",
		},
		func(ctx context.Context, all *webhooks.Endpoints, at *webhooks.Endpoint, _ string) (Outcome, error) {
			answer, err := all.SendTest(ctx, at.Tenant, at.ID)
			return Outcome{Endpoint: *at, Answer: &answer}, err
		},
	},
	{
		admin.Operation{
			Name: "delete", Done: "deleted", Danger: true,
			About: "The endpoint is removed with its attempts. What it has not got yet counts as delivered. This cannot be undone.",
		},
		func(ctx context.Context, all *webhooks.Endpoints, at *webhooks.Endpoint, _ string) (Outcome, error) {
			return Outcome{Endpoint: *at}, all.Delete(ctx, at.Tenant, at.ID)
		},
	},
}

// Named returns the operation of a name; false if there is none.
func Named(name string) (Operation, bool) {
	i := slices.IndexFunc(Operations, func(o Operation) bool { return o.Name == name })
	if i < 0 {
		return Operation{}, false
	}
	return Operations[i], true
}

// Do does an operation. reason is what the table of actions gets, and the customer of a disabled endpoint; it may
// be "".
func (o Operation) Do(ctx context.Context, all *webhooks.Endpoints, id, reason string) (Outcome, error) {
	at, err := all.Find(ctx, id)
	if err != nil {
		return Outcome{}, err
	}
	return o.do(ctx, all, &at, reason)
}

// View returns the outcome as JSON has it.
func (o *Outcome) View() any {
	if o.Answer != nil {
		return viewOfAnswer(o.Answer)
	}
	view := ViewOf(&o.Endpoint)
	view.Secret = o.Secret
	return view
}

// Deliveries counts the deliveries to an endpoint that are tried again, and those that have failed for good.
type Deliveries struct {
	Waiting int64 `json:"waiting"`
	Dead    int64 `json:"dead"`
}

// DeliveriesOf counts the deliveries to an endpoint that have not succeeded.
func DeliveriesOf(ctx context.Context, all *webhooks.Endpoints, tenant, id string) (of Deliveries, err error) {
	counts, err := all.Waiting(ctx, tenant, id)
	for state, n := range counts {
		if state == store.StateDead {
			of.Dead += n
		} else {
			of.Waiting += n
		}
	}
	return of, err
}

// Whole is an endpoint with what has become of its deliveries.
type Whole struct {
	View
	Deliveries Deliveries    `json:"deliveries"`
	Attempts   []AttemptView `json:"attempts"`
}

// shownAttempts is how many attempts are shown of an endpoint.
const shownAttempts = 20

// Show returns an endpoint with its deliveries and last attempts.
func Show(ctx context.Context, all *webhooks.Endpoints, id string) (Whole, error) {
	e, err := all.Find(ctx, id)
	if err != nil {
		return Whole{}, err
	}
	whole := Whole{View: ViewOf(&e), Attempts: []AttemptView{}}
	if whole.Deliveries, err = DeliveriesOf(ctx, all, e.Tenant, id); err != nil {
		return Whole{}, err
	}
	attempts, err := all.Attempts(ctx, store.AttemptQuery{Tenant: e.Tenant, Endpoint: id, Limit: shownAttempts})
	for i := range attempts {
		whole.Attempts = append(whole.Attempts, AttemptViewOf(&attempts[i]))
	}
	return whole, err
}
