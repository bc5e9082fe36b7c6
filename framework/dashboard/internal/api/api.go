// Package api serves the admin API: what the pages show and do, for programs, as JSON. openapi.yaml
// describes it; tests compare every answer and the routes with the description.
//
// A route is a handler, whose result is written as JSON, and the parameters that its query may have:
//
//	{"GET /actions", actions, []string{"limit"}},
//
// GET needs the role viewer, and what changes something the role operator. Errors are problems of RFC 9457.
//
// The files in the order in which to read them: api.go, problem.go, input.go, and then one for
// each group of routes.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/acts"
	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/dashboard/internal/veil"
)

// Limits of a request.
const (
	doctorTime = time.Minute
	bodyBytes  = 64 << 10
)

var requestTime = 10 * time.Second

// Config configures the API.
type Config struct {
	Target *target.Current
	// Acts runs the actions that requests start.
	Acts *acts.Runner
	// History has the figures.
	History *history.History
	// Prefix is the path below which the dashboard is served. Locations begin with it; requests
	// arrive without it.
	Prefix string
	Logger *slog.Logger
	// Masks hide parts of payloads.
	Masks masks.Masks
}

// API serves the admin API. It is safe for concurrent use.
type API struct {
	Config
	mux     *http.ServeMux
	doctors checks
}

// handler returns the answer to a request: a value that is written as JSON, or a *reply.
type handler func(ctx context.Context, r *request) (any, error)

// reply is an answer with a status other than 200, or with a location.
type reply struct {
	status   int
	location string
	body     any
}

// route is a pattern of a ServeMux, its handler, and the parameters of its query.
type route struct {
	pattern    string
	handle     handler
	parameters []string
}

// routes has all routes except the description.
var routes = []route{
	{"GET /status", status, nil},
	{"GET /sinks", sinks, nil},
	{"GET /sinks/{sink}", sink, nil},
	{"POST /sinks/{sink}/pause", onSink("pause"), nil},
	{"POST /sinks/{sink}/resume", onSink("resume"), nil},
	{"GET /health/sinks", healthOfSinks, []string{"max_lag", "max_dead"}},
	{"GET /health/sinks/{sink}", healthOfSink, []string{"max_lag", "max_dead"}},
	{"GET /parked", parked, append([]string{"cursor", "limit"}, filterNames...)},
	{"GET /parked/counts", parkedCounts, filterNames},
	{"GET /parked/causes", parkedCauses, filterNames},
	{"GET /log", logged, []string{"id", "type", "key", "since", "until", "cursor", "limit"}},
	{"POST /plans", makePlan, nil},
	{"GET /actions", actions, []string{"limit"}},
	{"POST /actions", begin, nil},
	{"GET /actions/{id}", action, nil},
	{"POST /actions/{id}/cancel", cancel, nil},
	{"POST /actions/{id}/continue", continueReplay, nil},
	{"GET /notifications/{id}", one, []string{"payload", "offset"}},
	{"GET /notifications/{id}/trace", trace, []string{"from"}},
	{"GET /schedules", schedules, nil},
	{"GET /endpoints", endpoints, []string{"tenant", "troubled", "cursor", "limit"}},
	{"POST /endpoints", addEndpoint, nil},
	{"GET /endpoints/{id}", oneEndpoint, nil},
	{"PATCH /endpoints/{id}", updateEndpoint, nil},
	{"DELETE /endpoints/{id}", onEndpoint("delete"), nil},
	{"POST /endpoints/{id}/enable", onEndpoint("enable"), nil},
	{"POST /endpoints/{id}/disable", onEndpoint("disable"), nil},
	{"POST /endpoints/{id}/rotate", onEndpoint("rotate"), nil},
	{"POST /endpoints/{id}/test", onEndpoint("test"), nil},
	{"POST /endpoints/{id}/recover", recoverEndpoint, nil},
	{"GET /forwarders", forwarders, nil},
	{"GET /types", types, []string{"rows"}},
	{"GET /types/{type}/{version}/schema", schema, nil},
	{"GET /config", configuration, nil},
	{"GET /doctor", diagnose, []string{"only"}},
}

// New returns the API.
func New(c Config) *API {
	a := &API{Config: c, mux: http.NewServeMux()}
	for _, r := range routes {
		a.mux.Handle(r.pattern, a.serve(r))
	}
	a.mux.HandleFunc("GET /openapi.json", a.describe)
	return a
}

// ServeHTTP answers a request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	handler, pattern := a.mux.Handler(r)
	switch {
	case path.Clean(r.URL.Path) != r.URL.Path: // the mux would redirect to a path without the prefix
		a.fail(w, r, problemOf(http.StatusNotFound, "there is no %s", r.URL.Path))
	case pattern == "":
		refused := &refusal{header: w.Header()}
		handler.ServeHTTP(refused, r) // sets Allow if the path exists for other methods
		w.Header().Del("X-Content-Type-Options")
		if refused.status == http.StatusMethodNotAllowed {
			a.fail(w, r, problemOf(refused.status, "%s accepts %s", r.URL.Path, w.Header().Get("Allow")))
			return
		}
		a.fail(w, r, problemOf(http.StatusNotFound, "there is no %s", r.URL.Path))
	default:
		a.mux.ServeHTTP(w, r)
	}
}

// refusal is an http.ResponseWriter that keeps the status with which the mux refuses a request.
type refusal struct {
	header http.Header
	status int
}

func (r *refusal) Header() http.Header            { return r.header }
func (r *refusal) WriteHeader(status int)         { r.status = status }
func (r *refusal) Write(text []byte) (int, error) { return len(text), nil }

// request is the argument of a handler: the HTTP request, the outbox that is shown, and the user.
type request struct {
	*http.Request
	*target.Target
	// Store is the outbox as the user may see it.
	Store *veil.Store
	API   *API
	// Admin acts in the name of the user.
	Admin *admin.Admin
	User  access.User

	values url.Values          // of the query
	body   http.ResponseWriter // to limit the size of the body, and to set deadlines
}

// serve returns the http.Handler of a route.
func (a *API) serve(to route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		r, err := a.request(w, hr)
		if err == nil {
			r.values, err = r.query(to.parameters)
		}
		if err != nil {
			a.fail(w, hr, err)
			return
		}
		ctx, cancel := context.WithTimeout(hr.Context(), requestTime)
		defer cancel()
		answer, err := to.handle(ctx, r)
		if hr.Method != http.MethodGet && hr.Method != http.MethodHead {
			a.History.Renew() // later answers show the effects of the request
		}
		if err != nil {
			a.fail(w, hr, err)
			return
		}
		if with, is := answer.(*reply); is {
			if with.location != "" {
				w.Header().Set("Location", a.Prefix+with.location)
			}
			a.write(w, hr, with.status, "application/json", with.body)
			return
		}
		a.write(w, hr, http.StatusOK, "application/json", answer)
	})
}

func (a *API) request(w http.ResponseWriter, hr *http.Request) (*request, error) {
	user, needs := access.From(hr.Context()), access.Viewer
	if hr.Method != http.MethodGet && hr.Method != http.MethodHead {
		needs = access.Operator
	}
	if !user.May(needs) {
		return nil, problemOf(http.StatusForbidden, "this needs the role %s", needs)
	}
	t, err := a.Target.Get()
	if err != nil {
		return nil, err
	}
	r := &request{Request: hr, Target: t, Store: veil.Of(t, a.Masks, user), API: a, User: user, body: w}
	r.Admin = admin.New(r.Store, user.Name).For(admin.Request{Address: user.Address})
	return r, nil
}

// write writes an answer.
func (a *API) write(w http.ResponseWriter, r *http.Request, status int, kind string, body any) {
	text, err := admin.JSON(body)
	if err != nil {
		a.Logger.Error("writing an answer of the admin API failed", "path", r.URL.Path, "error", err)
		status, kind, text = http.StatusInternalServerError, problemType, []byte(`{"type": "about:blank", "title": "Internal Server Error", "status": 500}`+"\n")
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
