// Package dashboard shows an outbox to people, as web pages, and to programs, as the admin API.
//
//	d, err := dashboard.New(dashboard.Config{})
//	defer d.Close()
//	defer d.Show(dashboard.Target{Store: store, Forwarder: f})()
//	http.ListenAndServe("127.0.0.1:8090", d)
//
// It is also a handler below a path of an application's own server: see the example of
// Config.Access.
//
// All that it does is also done by the command line, which needs no running process:
// both use package admin.
package dashboard

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/acts"
	"github.com/waybill-go/waybill/framework/dashboard/internal/api"
	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
	"github.com/waybill-go/waybill/framework/dashboard/internal/pages"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
)

// Target is an outbox to show, and Store what it needs of one.
type (
	Target = target.Target
	Store  = target.Store
)

// What decides who may do what.
type (
	// Access says who may do what. Its zero value serves loopback addresses only, where
	// everybody is an operator.
	Access = access.Config
	// Credential is a secret, and the role of the one who has it.
	Credential = access.Credential
	// Proxy is a reverse proxy that authenticates its users.
	Proxy = access.Proxy
	// User is a person or a program.
	User = access.User
	// Role is what a user may do.
	Role = access.Role
)

// The roles. A user of another one may do nothing.
const (
	// Viewer may look at all but payloads.
	Viewer = access.Viewer
	// Operator may act too, and look at payloads.
	Operator = access.Operator
)

// MinToken is how many bytes a token of Access has at least.
const MinToken = access.MinToken

// Config is what a dashboard works with. The zero value is the usual one.
type Config struct {
	// Prefix is the path below which it is served, such as /admin/outbox: it begins with a
	// slash and ends with none. Requests come with it.
	Prefix string
	// Masks are what operators do not see of payloads, in pages and by the API, as JSON paths by type (order.placed), the
	// beginning of types (order.*) or * for all: {"customer.*": {"$.email", "$.card.number"}}.
	// Of a type with masks a payload that is not JSON is not shown at all. What is masked under one
	// name of a type is under each.
	Masks map[string][]string
	// Access says who may do what.
	Access Access
	// Pprof serves profiles of the process at /debug/pprof/, for operators.
	Pprof bool
	// Logger gets a line for each request that is refused, or fails for a reason of ours, and for
	// each payload that is looked at; default: slog's.
	Logger *slog.Logger

	list func() []Listed // of Several
}

// Dashboard is an http.Handler. It is safe for concurrent use.
type Dashboard struct {
	current target.Current
	acts    *acts.Runner
	gate    *access.Gate
	history *history.History
	pages   *pages.Pages
	handler http.Handler
}

// New returns a dashboard that shows nothing yet.
func New(c Config) (*Dashboard, error) {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Prefix != "" && (c.Prefix == "/" || path.Clean("/"+c.Prefix) != c.Prefix) {
		return nil, fmt.Errorf("the prefix is %q: use a path like /admin/outbox", c.Prefix)
	}
	hidden, err := masks.Parse(c.Masks)
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	d := &Dashboard{acts: acts.New(c.Logger)}
	d.history = history.New(&d.current, c.Logger)
	d.pages = pages.New(pages.Config{Target: &d.current, Acts: d.acts, History: d.history, Prefix: c.Prefix, Logger: c.Logger, Masks: hidden, List: c.list})
	mux := http.NewServeMux()
	bound := access.NewBound()
	mux.Handle("/", bound.Of(d.pages))
	mux.Handle("/static/", d.pages)
	mux.Handle("/live", d.pages)
	v1 := bound.Of(http.StripPrefix("/api/v1", api.New(api.Config{Target: &d.current, Acts: d.acts, History: d.history, Prefix: c.Prefix, Logger: c.Logger, Masks: hidden})))
	mux.Handle("/api/v1/", v1)
	mux.Handle("/api/v1", v1)
	if c.Pprof {
		mux.Handle("/debug/pprof/", access.Require(Operator, profiles()))
	}
	if d.gate, err = access.New(c.Access, mux, c.Logger); err != nil {
		return nil, err
	}
	d.handler = below(c.Prefix, d.gate)
	return d, nil
}

// below serves what is below a prefix, without it. A path that is not in its shortest form is not found:
// a ServeMux would redirect it to one without the prefix.
func below(prefix string, next http.Handler) http.Handler {
	if prefix == "" {
		return next
	}
	stripped, escaped := http.StripPrefix(prefix, next), (&url.URL{Path: prefix}).EscapedPath()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, isBelow := strings.CutPrefix(r.URL.EscapedPath(), escaped)
		switch {
		case isBelow && at == "":
			http.Redirect(w, r, (&url.URL{Path: prefix + "/", RawQuery: r.URL.RawQuery}).String(), http.StatusMovedPermanently)
		case isBelow && at[0] == '/' && path.Clean(at) == cmp.Or(strings.TrimSuffix(at, "/"), "/"):
			stripped.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	})
}

// Close ends live figures, interrupts the actions that it runs, each between two batches, and
// waits for that. A server that waits for its requests to end is shut down behind it.
func (d *Dashboard) Close() {
	d.pages.Close()
	d.acts.Close()
	d.history.Close()
}

// Show makes an outbox the one that is shown, in place of the one before. From then on the
// dashboard looks at its figures every ten seconds, until Close. release ends that the outbox is
// shown, unless another one is by then.
func (d *Dashboard) Show(t Target) (release func()) {
	release = d.current.Show(t)
	d.history.Begin()
	return release
}

// Change makes other people be let in from the next request on; what is being served goes on. If
// the new access has mistakes, which are the error, the old one stays.
func (d *Dashboard) Change(a Access) error { return d.gate.Change(a) }

// ServeHTTP serves the pages and the API.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }
