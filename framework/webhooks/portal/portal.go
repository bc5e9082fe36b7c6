// Package portal serves a page on which an application's customers manage their webhooks endpoints, and a
// JSON API with which their programs do the same:
//
//	handler, err := portal.New(endpoints, portal.Config{
//		Prefix:    "/webhooks",
//		Authorize: func(r *http.Request) (tenant string, err error) { return customerOf(r) },
//	})
//	mux.Handle("/webhooks/", handler)
//
// A request sees and changes the endpoints of one tenant, which the application's Authorize names. Ids of
// other tenants are answered like unknown ones. The pages need no JavaScript and load nothing from elsewhere.
// They also work in a frame of the application.
//
// The API is below /api; /api/openapi.json and /api/openapi.yaml describe it.
//
// The files in the order in which to read them: portal.go, config.go, routes.go, serve.go, problem.go; endpoints.go
// with change.go, form.go and chart.go; attempts.go, types.go; views.go has what the API answers, and text.go what
// templates call.
package portal

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/internal/look"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// The files of the portal.
var (
	//go:embed templates
	templates embed.FS
	//go:embed static/style.css
	style []byte
	//go:embed static/icon.svg
	icon []byte
	//go:embed openapi.yaml
	description []byte
)

// ErrUnauthenticated is what Config.Authorize returns, or wraps, if it is not known who makes a request.
var ErrUnauthenticated = errors.New("not logged in")

// maxBody bounds the body of a request, in bytes.
const maxBody = 256 << 10

// testsAtOnce is how many tests of one tenant may wait for answers at once.
const testsAtOnce = 2

// portal serves the pages and the API.
type portal struct {
	Config
	endpoints *webhooks.Endpoints
	path      string // Prefix as it stands in addresses
	policy    string
	cross     *http.CrossOriginProtection
	mux       *http.ServeMux
	templates map[string]*template.Template
	files     map[string]file // that do not change, by path
	tests     slots
}

// New returns the handler of the pages and of the API. Requests must include c.Prefix. It connects to nothing,
// and is safe for concurrent use. The error joins all mistakes of c.
func New(e *webhooks.Endpoints, c Config) (http.Handler, error) {
	c.setDefaults()
	err := c.check()
	if e == nil {
		err = errors.Join(errors.New("the endpoints are nil: open the outbox before, with Open, and declare a sink for them"), err)
	}
	if err != nil {
		return nil, fmt.Errorf("portal: %w", err)
	}
	p := &portal{
		Config: c, endpoints: e, path: (&url.URL{Path: c.Prefix}).EscapedPath(), policy: c.policy(), cross: http.NewCrossOriginProtection(),
		mux: http.NewServeMux(), templates: make(map[string]*template.Template), tests: slots{of: make(map[string]int)},
	}
	for _, r := range routes {
		method, at, _ := strings.Cut(r.pattern, " ")
		p.mux.Handle(method+" "+c.Prefix+at, p.serve(r))
	}
	for _, name := range pages {
		t := template.New("layout.html").Funcs(formats)
		p.templates[name] = template.Must(t.ParseFS(templates, "templates/layout.html", "templates/parts.html", "templates/"+name+".html"))
	}
	described := bytes.Replace(description, []byte("servers: [{url: /api}]"), []byte("servers: [{url: "+strconv.Quote(p.path+"/api")+"}]"), 1)
	var document map[string]any
	if err := yaml.Unmarshal(described, &document); err != nil {
		return nil, err
	}
	asJSON, err := json.MarshalIndent(document, "", "  ")
	p.files = map[string]file{
		"/static/style.css": {"text/css; charset=utf-8", look.Style(c.Accent, c.AccentDark, style)},
		"/static/icon.svg":  {"image/svg+xml", icon},
		"/api/openapi.yaml": {"application/yaml", described},
		"/api/openapi.json": {"application/json", asJSON},
	}
	return p, err
}

// headers are set on all answers.
var headers = map[string]string{
	"Cache-Control":                "no-store",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
	"Referrer-Policy":              "same-origin",
	"X-Content-Type-Options":       "nosniff",
}

// ServeHTTP serves a request of a customer, or refuses it.
func (p *portal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	w.Header().Set("Content-Security-Policy", p.policy)
	handler, pattern := p.mux.Handler(r)
	if pattern != "GET "+p.Prefix+static { // whose files have nothing of a tenant
		tenant, err := p.admit(r)
		if err != nil {
			p.fail(w, r, err)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), tenantKey{}, tenant))
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if pattern != "" {
		p.mux.ServeHTTP(w, r)
		return
	}
	refused := &refusal{header: w.Header()}
	handler.ServeHTTP(refused, r) // sets Allow if the path exists for other methods
	if refused.status == http.StatusMethodNotAllowed {
		p.fail(w, r, problemOf(refused.status, "this address accepts %s", w.Header().Get("Allow")))
		return
	}
	p.fail(w, r, problemOf(http.StatusNotFound, "there is no such page"))
}

// refusal is an http.ResponseWriter that keeps the status with which a mux refuses a request.
type refusal struct {
	header http.Header
	status int
}

func (r *refusal) Header() http.Header            { return r.header }
func (r *refusal) WriteHeader(status int)         { r.status = status }
func (r *refusal) Write(text []byte) (int, error) { return len(text), nil }

// admit returns whose endpoints a request may see and change.
func (p *portal) admit(r *http.Request) (string, error) {
	if p.cross.Check(r) != nil || isForeign(r) {
		return "", problemOf(http.StatusForbidden, "the request comes from a page of another origin")
	}
	tenant, err := p.Authorize(r)
	switch {
	case errors.Is(err, ErrUnauthenticated):
		return "", problemOf(http.StatusUnauthorized, "you are not logged in, or not any more: log in, and try again")
	case err != nil:
		p.Logger.Warn("a request to the portal was refused", "reason", err, "method", r.Method, "path", r.URL.Path)
		return "", problemOf(http.StatusForbidden, "you may not use this")
	case tenant == "" || !isText(tenant):
		p.Logger.Error("a request to the portal was refused: Authorize has returned no tenant", "method", r.Method, "path", r.URL.Path)
		return "", problemOf(http.StatusForbidden, "you may not use this")
	}
	return tenant, nil
}

// isForeign reports whether a page of another origin loads or fetches something, to which the browser adds the
// customer's session. It may link to the portal; which pages may show it in a frame is in the policy.
func isForeign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		to := r.Header.Get("Sec-Fetch-Dest")
		return r.Header.Get("Sec-Fetch-Mode") != "navigate" || to != "document" && to != "iframe"
	}
	return false
}

func (p *portal) isAPI(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, p.Prefix+"/api/") }

// isText reports whether databases accept a text: UTF-8 without a NUL.
func isText(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }
