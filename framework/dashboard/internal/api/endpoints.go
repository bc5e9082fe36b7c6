package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/internal/endpoint"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// testTime limits how long a test of an endpoint may take.
const testTime = time.Minute

// desk returns what manages the endpoints in the name of the user, who may have a reason.
func (r *request) desk(reason string) (*webhooks.Endpoints, error) {
	switch {
	case r.Endpoints == nil:
		return nil, problemOf(http.StatusNotFound, "this process has no sink of kind webhooks")
	case !isText(reason):
		return nil, problemOf(http.StatusBadRequest, "the reason has a NUL")
	}
	return r.Endpoints.As(r.Admin.For(admin.Request{Address: r.User.Address, Reason: reason})), nil
}

func endpoints(ctx context.Context, r *request) (any, error) {
	limit, err := r.number("limit", pageRows, 1, maxPageRows)
	if err != nil {
		return nil, err
	}
	troubled, err := r.number("troubled", 0, 0, 1)
	if err != nil {
		return nil, err
	}
	q := webhooks.Query{Tenant: r.values.Get("tenant"), Troubled: troubled == 1, Limit: limit + 1}
	if err := parseCursor(r.values.Get("cursor"), &q.After.Tenant, &q.After.ID); err != nil {
		return nil, err
	}
	all, err := r.desk("")
	if err != nil {
		return nil, err
	}
	found, err := all.List(ctx, q)
	page := struct {
		Endpoints []endpoint.View `json:"endpoints"`
		Next      string          `json:"next,omitempty"`
	}{Endpoints: []endpoint.View{}}
	if len(found) > limit {
		found = found[:limit]
		page.Next = cursor(found[limit-1].Tenant, found[limit-1].ID)
	}
	for i := range found {
		page.Endpoints = append(page.Endpoints, r.Store.Endpoint(endpoint.ViewOf(&found[i])))
	}
	return page, err
}

func oneEndpoint(ctx context.Context, r *request) (any, error) {
	all, err := r.desk("")
	if err != nil {
		return nil, err
	}
	whole, err := endpoint.Show(ctx, all, r.PathValue("id"))
	return r.Store.WholeEndpoint(whole), err
}

func addEndpoint(ctx context.Context, r *request) (any, error) {
	var body struct {
		endpoint.Change
		Tenant     string `json:"tenant"`
		Secret     string `json:"secret"`
		Asymmetric bool   `json:"asymmetric"`
		Reason     string `json:"reason"`
	}
	if err := r.decode(&body, false); err != nil {
		return nil, err
	}
	key, err := r.key()
	if err != nil {
		return nil, err
	}
	all, err := r.desk(body.Reason)
	if err != nil {
		return nil, err
	}
	n := webhooks.NewEndpoint{Tenant: body.Tenant, Key: key, Secret: body.Secret, Asymmetric: body.Asymmetric}
	if err := body.Apply(&n.Settings); err != nil {
		return nil, err
	}
	added, secret, err := all.Create(ctx, n)
	if err != nil {
		return nil, err
	}
	view := endpoint.ViewOf(&added)
	view.Secret = secret
	return &reply{http.StatusCreated, "/api/v1/endpoints/" + url.PathEscape(added.ID), view}, nil
}

func updateEndpoint(ctx context.Context, r *request) (any, error) {
	var body struct {
		endpoint.Change
		Reason string `json:"reason"`
	}
	if err := r.decode(&body, false); err != nil {
		return nil, err
	}
	all, err := r.desk(body.Reason)
	if err != nil {
		return nil, err
	}
	at, err := all.Find(ctx, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	changed, err := all.Update(ctx, at.Tenant, at.ID, func(e *webhooks.Endpoint) error { return body.Apply(&e.Settings) })
	return endpoint.ViewOf(&changed), err
}

// onEndpoint returns the handler of an operation on the endpoint in the path.
func onEndpoint(operation string) handler {
	o, _ := endpoint.Named(operation)
	return func(ctx context.Context, r *request) (any, error) {
		var body struct {
			Reason string `json:"reason"`
		}
		if err := r.decode(&body, true); err != nil {
			return nil, err
		}
		all, err := r.desk(body.Reason)
		if err != nil {
			return nil, err
		}
		if operation == "test" {
			longer, cancel := r.longer(testTime)
			defer cancel()
			ctx = longer
		}
		outcome, err := o.Do(ctx, all, r.PathValue("id"), body.Reason)
		if err != nil {
			return nil, err
		}
		return outcome.View(), nil
	}
}

// recoverEndpoint starts an action, as begin does.
func recoverEndpoint(ctx context.Context, r *request) (any, error) {
	var body struct {
		Since  time.Time `json:"since"`
		Reason string    `json:"reason"`
	}
	if err := r.decode(&body, false); err != nil {
		return nil, err
	}
	if body.Since.IsZero() {
		return nil, problemOf(http.StatusBadRequest, "since is missing: send the time since when to deliver again")
	}
	all, err := r.desk(body.Reason)
	if err != nil {
		return nil, err
	}
	a, err := r.repeatable(map[string]any{"recover": r.PathValue("id"), "since": body.Since}, body.Reason)
	if err != nil {
		return nil, err
	}
	if action, found, err := a.Begun(ctx); found || err != nil {
		return accepted(action), err
	}
	at, err := all.Find(ctx, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	p, err := all.As(a).PlanRecovery(ctx, at.Tenant, at.ID, body.Since)
	if err != nil {
		return nil, err
	}
	action, err := r.API.Acts.Start(ctx, p)
	if errors.Is(err, store.ErrActionBegun) { // by a simultaneous request with the same key
		action, _, err = a.Begun(ctx)
	}
	return accepted(action), err
}
