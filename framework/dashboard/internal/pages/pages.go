// Package pages serves the web pages of the dashboard. Each page works without JavaScript:
// filters are GET forms, and an act is a POST from a page that asks for confirmation; its answer
// is a 303.
//
// A page consists of a view, which is a function in a separate file, and a template with the same
// name, which defines "title" and "content":
//
//	p.livePage("GET /parked", "parked", parked)
//
// A view returns the data of its template, or goTo another page after an act. The figures of a
// page registered by livePage change while it is open: the browser reads the page again, and takes
// over the texts of the elements marked data-live="name". It shows how many of the elements marked
// data-row="name" are new or gone, and reloads the page when the element marked data-until is gone.
//
// The files in the order in which to read them: pages.go, nav.go, format.go, input.go, spark.go;
// then one for each page: overview.go, sink.go, replay.go, parked.go, plan.go,
// notification.go with payload.go (package masks hides parts of it), log.go, schedules.go, endpoints.go, forwarders.go,
// types.go, actions.go, privacy.go, config.go, doctor.go, find.go, databases.go. static has the one style, the one script and the
// icon.
package pages

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/acts"
	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/dashboard/internal/veil"
	"github.com/waybill-go/waybill/framework/internal/look"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

//go:embed templates static
var files embed.FS

// pageTime limits how long a page may take to make.
var pageTime = 10 * time.Second

// formBytes limits the size of a form.
const formBytes = 256 << 10

// Config configures the pages.
type Config struct {
	Target *target.Current
	// Acts runs the acts that users confirm.
	Acts *acts.Runner
	// History has the figures.
	History *history.History
	// Prefix is the path below which the pages are served, without a slash at its end. Links
	// begin with it; requests arrive without it.
	Prefix string
	Logger *slog.Logger
	// Masks hide parts of payloads.
	Masks masks.Masks
	// List returns all databases; nil if there is only one.
	List func() []Listed
}

// Pages serves the pages.
type Pages struct {
	Config
	mux       *http.ServeMux
	templates map[string]*template.Template
	live      map[string]bool // patterns of pages whose figures change while they are open
	operators map[string]bool // patterns of pages that only operators may see
	patterns  []string
}

// New returns the handler of all pages and of the static files they use.
func New(c Config) *Pages {
	p := &Pages{Config: c, mux: http.NewServeMux(), templates: make(map[string]*template.Template), live: make(map[string]bool), operators: make(map[string]bool)}
	p.templates["problem"] = p.parse("problem")
	static, _ := fs.Sub(files, "static")
	own, _ := fs.ReadFile(static, "style.css")
	style := look.Style(look.Accent, look.AccentDark, own)
	p.mux.HandleFunc("GET /static/style.css", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "style.css", time.Time{}, bytes.NewReader(style))
	})
	p.mux.Handle("GET /static/", http.StripPrefix("/static/", http.FileServerFS(static)))
	p.livePage("GET /{$}", "overview", overview)
	p.livePage("GET /sinks/{name}", "sink", sink)
	p.page("POST /sinks/{name}/pause", "confirm", onSink("pause"))
	p.page("POST /sinks/{name}/resume", "confirm", onSink("resume"))
	p.operatorPage("GET /sinks/{name}/replay", "replay", replay)
	p.page("POST /sinks/{name}/replay", "replay", replay)
	p.livePage("GET /schedules", "schedules", schedules)
	p.operatorPage("GET /schedules/{name}/{act}", "confirm", askAboutSchedule)
	p.page("POST /schedules/{name}/{act}", "confirm", actOnSchedule)
	p.livePage("GET /endpoints", "endpoints", endpoints)
	p.livePage("GET /endpoints/{id}", "endpoint", oneEndpoint)
	p.page("POST /endpoints/{id}/enable", "confirm", onEndpoint("enable"))
	p.page("POST /endpoints/{id}/disable", "confirm", onEndpoint("disable"))
	p.page("POST /endpoints/{id}/recover", "confirm", recoverEndpoint)
	p.livePage("GET /forwarders", "forwarders", forwarders)
	p.page("GET /types", "types", types)
	p.page("GET /config", "config", configuration)
	checkup := &checkup{acts: c.Acts, current: c.Target}
	p.live["GET /doctor"] = true
	p.operatorPage("GET /doctor", "doctor", checkup.look)
	p.page("POST /doctor", "doctor", checkup.start)
	p.page("GET /find", "find", find)
	p.livePage("GET /parked", "parked", parked)
	p.page("POST /parked/plan", "plan", plan)
	p.page("POST /parked/act", "plan", act)
	p.page("GET /notifications/{id}", "notification", p.look)
	p.page("POST /notifications/{id}", "notification", p.lookAtPayload)
	p.livePage("GET /log", "log", logged)
	p.operatorPage("GET /privacy", "privacy", askForPerson)
	p.page("POST /privacy", "privacy", findPerson)
	p.page("POST /privacy/erase", "privacy", erasePerson)
	p.livePage("GET /actions", "actions", actions)
	p.livePage("GET /actions/{id}", "action", action)
	p.page("POST /actions/{id}/cancel", "action", cancel)
	if c.List != nil {
		p.templates["databases"] = p.parse("databases")
		p.mux.HandleFunc("GET /databases", p.databases)
	}
	return p
}

// ServeHTTP serves a page, or a 404 with the navigation.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, pattern := p.mux.Handler(r); pattern == "" {
		p.fail(w, r, problem{http.StatusNotFound, "there is no such page"})
		return
	}
	p.mux.ServeHTTP(w, r)
}

// request is the argument of a view: the HTTP request, the outbox that is shown, and the user.
type request struct {
	*http.Request
	*target.Target
	// Store is the outbox as the user may see it.
	Store *veil.Store
	// Admin acts in the name of the user.
	Admin   *admin.Admin
	User    access.User
	Acts    *acts.Runner
	History *history.History
}

// answer is what a view returns for a page with a status other than 200, or for a page that
// browsers without scripts reload.
type answer struct {
	status  int           // 0 means 200
	refresh time.Duration // when to reload; 0 means never
	data    any
}

// goTo is what a view returns after an act instead of data: the path of the page to show next,
// and its query, as in Pages.to.
type goTo struct {
	path  string
	query []any
}

// view returns the data of a page, an answer or a goTo, which becomes a 303. An error is shown
// instead of the page, with its status if it is a problem.
type view func(ctx context.Context, r *request) (any, error)

// livePage registers a page whose figures change while it is open. Its view changes nothing.
func (p *Pages) livePage(pattern, name string, v view) {
	p.live[pattern] = true
	p.page(pattern, name, v)
}

// operatorPage registers a page that only operators may see.
func (p *Pages) operatorPage(pattern, name string, v view) {
	p.operators[pattern] = true
	p.page(pattern, name, v)
}

// page registers a page that viewers may see, unless it is a POST, which acts.
func (p *Pages) page(pattern, name string, v view) {
	p.templates[name] = p.parse(name)
	p.patterns = append(p.patterns, pattern)
	p.mux.HandleFunc(pattern, func(w http.ResponseWriter, hr *http.Request) {
		hr.Body = http.MaxBytesReader(w, hr.Body, formBytes)
		ctx, cancel := context.WithTimeout(hr.Context(), pageTime)
		defer cancel()
		r, err := p.request(hr)
		if err == nil && (p.operators[pattern] || hr.Method == http.MethodPost) && !r.User.May(access.Operator) {
			err = problem{http.StatusForbidden, "this is for operators"}
		}
		if err != nil {
			p.fail(w, hr, err)
			return
		}
		data, err := v(ctx, r)
		if err != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = ctx.Err() // drivers return other errors for it
			}
			p.fail(w, hr, err)
			return
		}
		if next, ok := data.(goTo); ok {
			to, _ := p.to(next.path, next.query...)
			http.Redirect(w, hr, string(to), http.StatusSeeOther)
			return
		}
		a, ok := data.(answer)
		if !ok {
			a.data = data
		}
		p.render(w, hr, name, a)
	})
}

func (p *Pages) request(r *http.Request) (*request, error) {
	t, err := p.Target.Get()
	if err != nil {
		return nil, problem{http.StatusServiceUnavailable, err.Error()}
	}
	if err := parse(r); err != nil {
		return nil, err
	}
	user := access.From(r.Context())
	seen := veil.Of(t, p.Masks, user)
	a := admin.New(seen, user.Name).For(admin.Request{Address: user.Address})
	return &request{Request: r, Target: t, Store: seen, Admin: a, User: user, Acts: p.Acts, History: p.History}, nil
}

// parse reads the query and the form, and refuses texts that no database accepts.
func parse(r *http.Request) error {
	var tooLong *http.MaxBytesError
	if err := r.ParseForm(); errors.As(err, &tooLong) {
		return problem{http.StatusRequestEntityTooLarge, fmt.Sprintf("a form has at most %d bytes", tooLong.Limit)}
	} else if err != nil {
		return problem{http.StatusBadRequest, err.Error()}
	}
	texts := []string{r.URL.Path}
	for _, values := range r.Form {
		texts = append(texts, values...)
	}
	for _, text := range texts {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return problem{http.StatusBadRequest, "the request has a text that is not valid UTF-8, or that contains a NUL"}
		}
	}
	return nil
}

// layout is the data of the template layout.html, which all pages share.
type layout struct {
	Prefix, Path string
	// Live says that the page's figures change while it is open.
	Live bool
	// Refresh is after how many seconds a browser without scripts reloads the page; 0 means
	// never.
	Refresh  int
	User     access.User
	Operator bool
	Data     any
}

func (p *Pages) parse(name string) *template.Template {
	t := template.New("layout.html").Funcs(formats).Funcs(template.FuncMap{"to": p.to, "nav": p.navigation})
	return template.Must(t.ParseFS(files, "templates/layout.html", "templates/time.html", "templates/"+name+".html"))
}

// to returns the address of a page, with names and values of its query. In a template:
// to "/parked" "sink" "partner".
func (p *Pages) to(path string, query ...any) (template.URL, error) {
	if len(query)%2 != 0 {
		return "", fmt.Errorf("link to %s: a name without a value", path)
	}
	values := make(url.Values)
	for i := 0; i < len(query); i += 2 {
		if text := fmt.Sprint(query[i+1]); text != "" {
			values.Add(fmt.Sprint(query[i]), text)
		}
	}
	to := p.Prefix + path
	if len(values) > 0 {
		to += "?" + values.Encode()
	}
	return template.URL(to), nil //nolint:gosec // the path is the template's, and the values are escaped
}

// render writes a page. If its template fails, render writes an error instead.
func (p *Pages) render(w http.ResponseWriter, r *http.Request, name string, a answer) {
	user := access.From(r.Context())
	var page bytes.Buffer
	l := layout{Prefix: p.Prefix, Path: r.URL.Path, User: user, Operator: user.May(access.Operator), Data: a.data, Refresh: int(a.refresh.Seconds())}
	status := cmp.Or(a.status, http.StatusOK)
	l.Live = status == http.StatusOK && p.live[r.Pattern]
	err := p.templates[name].Execute(&page, l)
	if err != nil {
		p.Logger.Error("making a page of the dashboard failed", "page", name, "error", err)
		http.Error(w, "making this page failed; the log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w)
}

// problem is an error with an HTTP status.
type problem struct {
	status int
	text   string
}

func (p problem) Error() string { return p.text }

// fail shows an error instead of a page. Viewers do not see errors of the database.
func (p *Pages) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the browser is gone
	}
	why := "; the log says why"
	if access.From(r.Context()).May(access.Operator) {
		why = ": " + err.Error()
	}
	what := problem{http.StatusInternalServerError, err.Error()}
	switch {
	case errors.As(err, &what):
	case errors.Is(err, admin.ErrFilter), errors.Is(err, webhooks.ErrInvalid):
		what.status = http.StatusBadRequest
	case errors.Is(err, store.ErrUnknownSink), errors.Is(err, store.ErrUnknownSchedule), errors.Is(err, store.ErrUnknownAction), errors.Is(err, webhooks.ErrUnknown):
		what.status = http.StatusNotFound
	case errors.Is(err, webhooks.ErrDisabled), errors.Is(err, webhooks.ErrChanged), errors.Is(err, webhooks.ErrKey), errors.Is(err, privacy.ErrMaster):
		what.status = http.StatusConflict
	case errors.Is(err, context.DeadlineExceeded):
		what = problem{http.StatusGatewayTimeout, "the database did not answer within " + pageTime.String()}
	case !p.answers(r.Context()):
		p.Logger.Warn("a page of the dashboard did not reach the database", "path", r.URL.Path, "error", err)
		what = problem{http.StatusServiceUnavailable, "the database cannot be reached" + why}
	default:
		what.text = "making this page failed" + why
		p.Logger.Error("a page of the dashboard failed", "path", r.URL.Path, "error", err)
	}
	if errors.Is(err, errNoSample) {
		w.Header().Set("Refresh", "1")
	}
	p.render(w, r, "problem", answer{status: what.status, data: struct{ Status, Text string }{http.StatusText(what.status), strings.TrimSpace(what.text)}})
}

// answers reports whether the database answers. The error of a query does not show this for all
// drivers.
func (p *Pages) answers(ctx context.Context) bool {
	t, err := p.Target.Get()
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = t.Store.Probe(ctx)
	return err == nil
}
