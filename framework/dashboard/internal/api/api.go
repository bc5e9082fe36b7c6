// Package api is the admin API: what the pages show and do, for programs, as JSON. Its
// description is openapi.yaml; a test holds every answer and the routes against it.
//
// A route is a handler, which returns what is written as JSON:
//
//	{"GET /schedules", schedules},
//
// GET asks for the role of a viewer, POST for that of an operator. Errors are problems of
// RFC 9457.
//
// The files in the order in which to read them: api.go, problem.go, input.go, and then one for
// each group of routes.
package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"path"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/acts"
	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
)

// Limits of a request.
const (
	requestTime = 10 * time.Second
	doctorTime  = time.Minute
	bodyBytes   = 64 << 10
)

// Config is what the API works with.
type Config struct {
	Target *target.Current
	// Acts runs the actions that requests begin.
	Acts *acts.Runner
	// History has the figures.
	History *history.History
	// Prefix is the path below which the API is: locations begin with it, and requests come
	// without it.
	Prefix string
	Logger *slog.Logger
	// Masks hide parts of payloads.
	Masks masks.Masks
}

// API serves the admin API. It is safe for concurrent use.
type API struct {
	Config
	mux     *http.ServeMux
	doctors chan struct{} // has room for the runs of the doctor that may go on at once
}

// handler gathers an answer: a value that is written as JSON, or a *reply.
type handler func(ctx context.Context, r *request) (any, error)

// reply is an answer with a status and headers of its own.
type reply struct {
	status   int
	location string
	body     any
}

// route is a handler and its place.
type route struct {
	pattern string
	handle  handler
}

// routes are all but the description.
var routes = []route{
	{"GET /status", status},
	{"GET /sinks", sinks},
	{"GET /sinks/{sink}", sink},
	{"POST /sinks/{sink}/pause", pause},
	{"POST /sinks/{sink}/resume", resume},
	{"GET /health/sinks", healthOfSinks},
	{"GET /health/sinks/{sink}", healthOfSink},
	{"GET /parked", parked},
	{"GET /parked/counts", parkedCounts},
	{"GET /log", logged},
	{"POST /plans", makePlan},
	{"GET /actions", actions},
	{"POST /actions", begin},
	{"GET /actions/{id}", action},
	{"POST /actions/{id}/cancel", cancel},
	{"POST /actions/{id}/continue", goOn},
	{"GET /notifications/{id}", one},
	{"GET /notifications/{id}/trace", trace},
	{"GET /schedules", schedules},
	{"GET /forwarders", forwarders},
	{"GET /types", types},
	{"GET /config", configuration},
	{"GET /doctor", diagnose},
}

// New returns the API.
func New(c Config) *API {
	a := &API{Config: c, mux: http.NewServeMux(), doctors: make(chan struct{}, 1)}
	for _, r := range routes {
		a.mux.Handle(r.pattern, a.serve(r.handle))
	}
	a.mux.HandleFunc("GET /openapi.json", a.describe)
	return a
}

// ServeHTTP answers a request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	handler, pattern := a.mux.Handler(r)
	switch {
	case path.Clean(r.URL.Path) != r.URL.Path: // which the mux redirects, without the prefix
		a.fail(w, r, problemOf(http.StatusNotFound, "there is no %s", r.URL.Path))
	case pattern == "":
		refused := &refusal{header: w.Header()}
		handler.ServeHTTP(refused, r) // sets Allow where the path is known
		w.Header().Del("X-Content-Type-Options")
		if refused.status == http.StatusMethodNotAllowed {
			a.fail(w, r, problemOf(refused.status, "%s takes %s", r.URL.Path, w.Header().Get("Allow")))
			return
		}
		a.fail(w, r, problemOf(http.StatusNotFound, "there is no %s", r.URL.Path))
	default:
		a.mux.ServeHTTP(w, r)
	}
}

// refusal learns from the mux why it serves no path.
type refusal struct {
	header http.Header
	status int
}

func (r *refusal) Header() http.Header            { return r.header }
func (r *refusal) WriteHeader(status int)         { r.status = status }
func (r *refusal) Write(text []byte) (int, error) { return len(text), nil }

// request is what a handler works with.
type request struct {
	*http.Request
	*target.Target
	API *API
	// Admin acts for the user.
	Admin *admin.Admin
	User  access.User

	body http.ResponseWriter // to bound what is read of the body, and for how long
}

// serve is the way of each request.
func (a *API) serve(handle handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		r, err := a.request(w, hr)
		if err != nil {
			a.fail(w, hr, err)
			return
		}
		ctx, cancel := context.WithTimeout(hr.Context(), requestTime)
		defer cancel()
		answer, err := handle(ctx, r)
		if hr.Method == http.MethodPost {
			a.History.Renew() // who has acted sees that
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
	if hr.Method == http.MethodPost {
		needs = access.Operator
	}
	if !user.May(needs) {
		return nil, problemOf(http.StatusForbidden, "this needs the role of %s", map[access.Role]string{access.Viewer: "a viewer", access.Operator: "an operator"}[needs])
	}
	t, err := a.Target.Get()
	if err != nil {
		return nil, err
	}
	r := &request{Request: hr, Target: t, API: a, User: user, body: w}
	r.Admin = admin.New(t.Store, user.Name).For(admin.Request{Address: user.Address})
	return r, nil
}

// write writes an answer as a whole.
func (a *API) write(w http.ResponseWriter, r *http.Request, status int, kind string, body any) {
	text, err := json.MarshalIndent(body, "", "  ")
	if err != nil {
		a.Logger.Error("writing an answer of the admin API failed", "path", r.URL.Path, "error", err)
		status, kind, text = http.StatusInternalServerError, problemType, []byte(`{"type": "about:blank", "title": "Internal Server Error", "status": 500}`)
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}
