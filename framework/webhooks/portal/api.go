package portal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/webhooks"
)

// How many rows a page of the API has by default, and at most.
const (
	usualRows = 50
	mostRows  = 200
)

// api has the routes of the API.
var api = []route{
	{"GET /api/endpoints", listEndpoints, []string{"after", "limit"}},
	{"POST /api/endpoints", createEndpoint, nil},
	{"GET /api/endpoints/{id}", getEndpoint, nil},
	{"PATCH /api/endpoints/{id}", updateEndpoint, nil},
	{"DELETE /api/endpoints/{id}", deleteEndpoint, nil},
	{"POST /api/endpoints/{id}/rotate", rotateEndpoint, nil},
	{"POST /api/endpoints/{id}/enable", enableEndpoint, nil},
	{"POST /api/endpoints/{id}/disable", disableEndpoint, nil},
	{"POST /api/endpoints/{id}/test", testEndpoint, nil},
	{"POST /api/endpoints/{id}/recover", recoverEndpoint, nil},
	{"GET /api/endpoints/{id}/attempts", listAttempts, attemptParameters},
	{"GET /api/attempts/{id}", getAttempt, nil},
	{"POST /api/attempts/{id}/resend", resendAttempt, nil},
	{"GET /api/types", listTypes, nil},
	{"GET /api/openapi.json", func(_ context.Context, r *request) (any, error) { return file{"application/json", r.portal.json}, nil }, nil},
	{"GET /api/openapi.yaml", func(_ context.Context, r *request) (any, error) { return file{"application/yaml", r.portal.yaml}, nil }, nil},
}

// describe makes the descriptions of the API, with its address.
func (p *portal) describe() error {
	text, err := files.ReadFile("openapi.yaml")
	if err != nil {
		return err
	}
	p.yaml = bytes.Replace(text, []byte("servers: [{url: /api}]"), []byte("servers: [{url: "+strconv.Quote(p.path+"/api")+"}]"), 1)
	var document map[string]any
	if err := yaml.Unmarshal(p.yaml, &document); err != nil {
		return err
	}
	p.json, err = json.MarshalIndent(document, "", "  ")
	return err
}

func listEndpoints(ctx context.Context, r *request) (any, error) {
	limit, err := r.number("limit", usualRows, mostRows)
	if err != nil {
		return nil, err
	}
	found, next, err := r.list(ctx, r.values.Get("after"), limit)
	views := make([]endpointView, len(found))
	for i := range found {
		views[i] = viewOf(&found[i])
	}
	return listed("endpoints", views, next), err
}

// newBody is the body of a request for a new endpoint.
type newBody struct {
	change
	Secret     string `json:"secret"`
	Asymmetric bool   `json:"asymmetric"`
}

func createEndpoint(ctx context.Context, r *request) (any, error) {
	var body newBody
	if err := r.decode(&body, false); err != nil {
		return nil, err
	}
	key := r.Header.Get("Idempotency-Key")
	if !isText(key) {
		return nil, problemOf(http.StatusBadRequest, "the Idempotency-Key is not valid text")
	}
	e, secret, err := r.create(ctx, key, body.Secret, body.Asymmetric, &body.change)
	if err != nil {
		return nil, err
	}
	r.revealed(e.ID)
	view, header := viewOf(&e), tagged(&e)
	view.Secret = secret
	header["Location"] = r.portal.path + "/api/endpoints/" + e.ID
	return reply{http.StatusCreated, header, view}, nil
}

func getEndpoint(ctx context.Context, r *request) (any, error) {
	e, err := r.endpoint(ctx)
	if err != nil {
		return nil, err
	}
	waiting, dead, err := r.waiting(ctx)
	if err != nil {
		return nil, err
	}
	view := viewOf(&e)
	view.Deliveries = &deliveriesView{waiting, dead}
	return reply{http.StatusOK, tagged(&e), view}, nil
}

// updateEndpoint changes settings. If-Match has the ETag of the endpoint; without it, or with *, any version is
// changed.
func updateEndpoint(ctx context.Context, r *request) (any, error) {
	var body change
	if err := r.decode(&body, false); err != nil {
		return nil, err
	}
	match, version := r.Header.Get("If-Match"), int64(0)
	if match != "" && match != "*" {
		var err error
		if version, err = strconv.ParseInt(strings.Trim(match, `"`), 10, 64); err != nil || version < 1 {
			return nil, problemOf(http.StatusBadRequest, `If-Match is %q: use the ETag of the endpoint, such as "1"`, match)
		}
	}
	e, err := r.update(ctx, version, &body)
	if version != 0 && errors.Is(err, webhooks.ErrChanged) {
		return nil, problemOf(http.StatusPreconditionFailed, "the endpoint does not have this ETag any more: read it again, and repeat the change")
	}
	return changed(e, err)
}

func deleteEndpoint(ctx context.Context, r *request) (any, error) {
	return reply{status: http.StatusNoContent}, r.endpoints.Delete(ctx, r.tenant, r.PathValue("id"))
}

func rotateEndpoint(ctx context.Context, r *request) (any, error) {
	if err := r.decode(&struct{}{}, true); err != nil {
		return nil, err
	}
	e, secret, err := r.endpoints.Rotate(ctx, r.tenant, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	r.revealed(e.ID)
	view := viewOf(&e)
	view.Secret = secret
	return reply{http.StatusOK, tagged(&e), view}, nil
}

func enableEndpoint(ctx context.Context, r *request) (any, error) {
	if err := r.decode(&struct{}{}, true); err != nil {
		return nil, err
	}
	return changed(r.endpoints.Enable(ctx, r.tenant, r.PathValue("id")))
}

func disableEndpoint(ctx context.Context, r *request) (any, error) {
	if err := r.decode(&struct{}{}, true); err != nil {
		return nil, err
	}
	return changed(r.endpoints.Disable(ctx, r.tenant, r.PathValue("id"), ""))
}

func testEndpoint(ctx context.Context, r *request) (any, error) {
	if err := r.decode(&struct{}{}, true); err != nil {
		return nil, err
	}
	answer, err := r.test(ctx)
	as := tested(answer)
	return viewOfExchange(&as), err
}

func recoverEndpoint(ctx context.Context, r *request) (any, error) {
	var body struct {
		Since time.Time `json:"since"`
	}
	if err := r.decode(&body, false); err != nil {
		return nil, err
	}
	n, err := r.recover(ctx, body.Since)
	return map[string]int64{"recovered": n}, err
}

func listAttempts(ctx context.Context, r *request) (any, error) {
	limit, err := r.number("limit", usualRows, mostRows)
	if err != nil {
		return nil, err
	}
	if _, err := r.endpoint(ctx); err != nil {
		return nil, err
	}
	found, next, err := r.attempts(ctx, r.values, limit)
	views := make([]attemptView, len(found))
	for i := range found {
		views[i] = viewOfAttempt(&found[i])
		views[i].Request, views[i].Answer = nil, nil
	}
	return listed("attempts", views, next), err
}

func getAttempt(ctx context.Context, r *request) (any, error) {
	a, err := r.attempt(ctx)
	return viewOfAttempt(&a), err
}

func resendAttempt(ctx context.Context, r *request) (any, error) {
	if err := r.decode(&struct{}{}, true); err != nil {
		return nil, err
	}
	return reply{status: http.StatusNoContent}, r.endpoints.Resend(ctx, r.tenant, r.PathValue("id"))
}
