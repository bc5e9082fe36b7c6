// Package dashboard serves web pages and an admin API, with which people and programs inspect and
// operate an outbox:
//
//	d, err := dashboard.New(dashboard.Config{})
//	defer d.Close()
//	defer d.Show(dashboard.Target{Store: store, Forwarder: f})()
//	http.ListenAndServe("127.0.0.1:8090", d)
//
// An application can also serve it below a path of its own server: see the example of
// Config.Authorize.
//
// The command line can do everything that the dashboard does, and needs no running process. Both
// use package admin.
package dashboard

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"

	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/acts"
	"github.com/waybill-go/waybill/framework/dashboard/internal/api"
	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
	"github.com/waybill-go/waybill/framework/dashboard/internal/pages"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/settings"
)

// Target is an outbox to show. Only Store is required:
//
//   - Store admin.Store
//   - Routing admin.Routing: which sinks get which types
//   - Forwarder *forwarder.Forwarder: the forwarder of this process
//   - Database string: the name of the outbox's database, if the forwarder has several
//   - Types *registry.Registry: the types that the program has registered
//   - Contracts func() (*contract.Set, error): the contracts of types; with an error, those that there
//     are
//   - Channels map[string]sinks.Channel: how consumers get the notifications of each sink
//   - Endpoints *webhooks.Endpoints: manages customers' endpoints, if a sink is of kind webhooks
//   - Privacy privacy.Config: the master key and the rules with which the data of a person is found and erased
//   - Doctor func(ctx context.Context, only ...string) []doctor.Finding: runs the checks with
//     these ids, or all
//   - Configuration func() ([]byte, error): the configuration in effect, as YAML without secrets
type Target = target.Target

// User is a person or a program: the Name that is recorded with each action, the Role, and
// the Address of the client, which is recorded too and by default is where the request comes
// from.
type User = access.User

// The roles of a User. One with another role may do nothing.
const (
	// Viewer may see everything except payloads, the texts of errors and the doctor's findings.
	Viewer = settings.Viewer
	// Operator may also see these, and act.
	Operator = settings.Operator
)

// Listed is a database in the list of several: its Name, its State, and in Error why no forwarder works on
// it, "" if there is no error.
type Listed = pages.Listed

// Config configures a dashboard. The zero value is ready to use.
type Config struct {
	// Observe has who may use the dashboard, which parts of payloads are hidden, and whether
	// profiles are served. Its Address is the host and port at which the program listens; "" if it
	// is not known.
	settings.Observe
	// Authorize replaces Auth. It is called for each request, concurrently. If it returns an error,
	// which is logged, or a user without a role, the answer is 403. If Hosts is empty, any host is
	// accepted.
	Authorize func(*http.Request) (User, error)
	// Prefix is the path below which the dashboard is served, such as /admin/outbox, with a
	// slash at the beginning and none at the end. Requests must include it.
	Prefix string
	// List returns several databases, in order; nil means that there is no list yet, and the
	// dashboard then shows the one outbox of Show. Each is served below /in/NAME, with pages that
	// list all of them. None is queried before someone opens its pages. Prefix must then be empty.
	List func() []Listed
	// Open returns the Target of a database of List, and false if this process has not opened it.
	// Required with List.
	Open func(name string) (Target, bool)
	// Logger gets a line for each request that is refused or fails in the server, and for each
	// payload that is shown; nil means slog's default.
	Logger *slog.Logger
}

// Dashboard is an http.Handler. It is safe for concurrent use.
type Dashboard struct {
	*board
	config  Config
	gate    *access.Gate
	handler http.Handler

	mu  sync.Mutex
	all map[string]*listed // the databases of a list
}

// board serves the pages and the API of an outbox to users that a Gate has let in.
type board struct {
	current target.Current
	acts    *acts.Runner
	history *history.History
	handler http.Handler
}

// New returns a dashboard. Call Show to make it show an outbox.
func New(c Config) (*Dashboard, error) {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Prefix != "" && (c.Prefix == "/" || path.Clean("/"+c.Prefix) != c.Prefix || c.List != nil) {
		return nil, fmt.Errorf("the prefix is %q: use a path like /admin/outbox, and none with a list of databases", c.Prefix)
	}
	d := &Dashboard{board: newBoard(c, nil), config: c, all: make(map[string]*listed)}
	served := d.board.handler
	if c.List != nil {
		served = http.HandlerFunc(d.serveListed)
	}
	var err error
	if d.gate, err = access.New(c.Observe, c.Authorize, served, c.Logger); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	d.handler = below(c.Prefix, d.gate)
	return d, nil
}

// newBoard returns a board. list returns the databases that its pages list; nil if there is one.
func newBoard(c Config, list func() []Listed) *board {
	b := &board{acts: acts.New(c.Logger)}
	b.history = history.New(&b.current, c.Logger)
	hidden := masks.Of(c.Masks)
	shown := pages.New(pages.Config{Target: &b.current, Acts: b.acts, History: b.history, Prefix: c.Prefix, Logger: c.Logger, Masks: hidden, List: list})
	mux := http.NewServeMux()
	bound := access.NewBound()
	mux.Handle("/", bound.Of(shown))
	mux.Handle("/static/", shown)
	v1 := bound.Of(http.StripPrefix("/api/v1", api.New(api.Config{Target: &b.current, Acts: b.acts, History: b.history, Prefix: c.Prefix, Logger: c.Logger, Masks: hidden})))
	mux.Handle("/api/v1/", v1)
	mux.Handle("/api/v1", v1)
	if c.Pprof {
		mux.Handle("/debug/pprof/", access.Require(Operator, profiles()))
	}
	b.handler = mux
	return b
}

// below strips a prefix from the paths of requests. It answers 404 to paths that are not clean: a
// ServeMux would redirect them to paths without the prefix.
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

// close interrupts running actions after their current batch, and waits for them to end.
func (b *board) close() {
	b.acts.Close()
	b.history.Close()
}

// Close interrupts running actions after their current batch, and waits for them to end. Call it
// before http.Server.Shutdown, which waits for requests to end.
func (d *Dashboard) Close() {
	d.close()
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, its := range d.all {
		its.close()
		delete(d.all, name)
	}
}

// Show makes the dashboard show an outbox instead of the previous one. The dashboard then samples
// the outbox every ten seconds until Close. release ends this, unless the dashboard shows another
// outbox by then.
func (b *board) Show(t Target) (release func()) {
	release = b.current.Show(t)
	b.history.Begin()
	return release
}

// Change replaces who may use the dashboard, which are all settings but Address, Masks and Pprof,
// from the next request on; requests in progress are not affected. If the new settings have mistakes,
// Change returns them and keeps the previous ones.
func (d *Dashboard) Change(o settings.Observe) error {
	o.Address = d.config.Address // that of the listener
	return d.gate.Change(o)
}

// ServeHTTP serves the pages and the API of each database.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }
