// Package dashboard serves web pages and an admin API, with which people and programs inspect and
// operate an outbox:
//
//	d, err := dashboard.New(dashboard.Config{})
//	defer d.Close()
//	defer d.Show(dashboard.Target{Store: store, Forwarder: f})()
//	http.ListenAndServe("127.0.0.1:8090", d)
//
// An application can also serve it below a path of its own server: see the example of
// Config.Access.
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

	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/acts"
	"github.com/waybill-go/waybill/framework/dashboard/internal/api"
	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
	"github.com/waybill-go/waybill/framework/dashboard/internal/pages"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
)

// Target is an outbox to show. Only Store is required:
//
//   - Store Store
//   - Routing admin.Routing: which sinks get which types
//   - Forwarder *forwarder.Forwarder: the forwarder of this process
//   - Database string: the name of the outbox's database, if the forwarder has several
//   - Types *registry.Registry: the types that the program has registered
//   - Doctor func(ctx context.Context, only ...string) []doctor.Finding: runs the checks with
//     these ids, or all
//   - Configuration func() ([]byte, error): the configuration in effect, as YAML without secrets
type Target = target.Target

// Store is what a Target needs of an outbox.
type Store = target.Store

// The types of access control.
type (
	// Access sets who may do what. Its zero value serves loopback addresses only, and every
	// visitor is an operator. Its fields:
	//
	//   - Address string: the host and port at which the program listens; "" if it is not known.
	//     If it is not a loopback address, the dashboard serves nothing without Users, Tokens,
	//     Proxy or Authorize
	//   - Hosts []string: host names of the dashboard besides localhost, loopback addresses, the
	//     address to which a request was sent, and the host of Address. Requests with other Host
	//     headers are refused, as a protection against DNS rebinding. With Authorize, any host is
	//     accepted if Hosts is empty
	//   - Proxies []netip.Prefix: the networks of reverse proxies whose X-Forwarded-For is believed,
	//     besides those of Proxy
	//   - Users map[string]Credential: by name, who may log in with HTTP Basic authentication. The
	//     secret is a password, or its bcrypt hash with a cost of at most 14
	//   - Tokens map[string]Credential: by the name that is recorded with actions, tokens for
	//     Authorization: Bearer, of at least MinToken bytes
	//   - Proxy Proxy: a reverse proxy that authenticates its users
	//   - Authorize func(*http.Request) (User, error): replaces Users, Tokens and Proxy. It is
	//     called for each request, concurrently. An error, which is logged, or a user without a
	//     role is answered with 403
	Access = access.Config
	// Credential is a Secret and the Role that it gives.
	Credential = access.Credential
	// Proxy is a reverse proxy that authenticates its users. Its fields:
	//
	//   - Networks []netip.Prefix: the networks of the proxy. Every client there can claim to be
	//     any user; headers from elsewhere are ignored. Empty means that there is no proxy
	//   - User string: the header with the user's name; default X-Forwarded-User
	//   - Role string: the header with a role, or with groups separated by commas. The value
	//     operator makes the user an operator. Users with other values, and all without a header,
	//     are viewers
	Proxy = access.Proxy
	// User is a person or a program: the Name that is recorded with each action, the Role, and
	// the Address of the client, which is recorded too and by default is where the request comes
	// from.
	User = access.User
	// Role is what a user may do.
	Role = access.Role
)

// The roles. A user with another role may do nothing.
const (
	// Viewer may see everything except payloads, the texts of errors and the doctor's findings.
	Viewer = access.Viewer
	// Operator may also see these, and act.
	Operator = access.Operator
)

// MinToken is the least number of bytes in a token of Access.
const MinToken = access.MinToken

// Config configures a dashboard. The zero value is ready to use.
type Config struct {
	// Prefix is the path below which the dashboard is served, such as /admin/outbox, with a
	// slash at the beginning and none at the end. Requests must include it.
	Prefix string
	// Masks hide parts of payloads in pages and in the API, also from operators: JSON paths by
	// type (order.placed), prefix of types (order.*) or * for all types, as in
	// {"customer.*": {"$.email", "$.card.number"}}. A path hides all values with these names, in any
	// case and at any depth, also in metadata and in the errors of receivers. A payload of such a type that is not JSON is
	// hidden completely. A mask for one name of a type applies to its aliases, too.
	Masks map[string][]string
	// Access sets who may do what.
	Access Access
	// Pprof serves profiles of the process at /debug/pprof/, for operators.
	Pprof bool
	// Logger gets a line for each request that is refused or fails in the server, and for each
	// payload that is shown; nil means slog's default.
	Logger *slog.Logger
}

// Dashboard is an http.Handler. It is safe for concurrent use.
type Dashboard struct {
	*board
	gate    *access.Gate
	handler http.Handler
}

// board serves the pages and the API of an outbox to users that a Gate has let in.
type board struct {
	current target.Current
	acts    *acts.Runner
	history *history.History
	pages   *pages.Pages
	handler http.Handler
}

// New returns a dashboard. Call Show to make it show an outbox.
func New(c Config) (*Dashboard, error) {
	c, hidden, err := c.checked()
	if err != nil {
		return nil, err
	}
	d := &Dashboard{board: newBoard(c, hidden, nil)}
	if d.gate, err = access.New(c.Access, d.board.handler, c.Logger); err != nil {
		return nil, err
	}
	d.handler = below(c.Prefix, d.gate)
	return d, nil
}

// checked returns the configuration with defaults, and its masks.
func (c Config) checked() (Config, masks.Masks, error) {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Prefix != "" && (c.Prefix == "/" || path.Clean("/"+c.Prefix) != c.Prefix) {
		return c, nil, fmt.Errorf("the prefix is %q: use a path like /admin/outbox", c.Prefix)
	}
	hidden, err := masks.Parse(c.Masks)
	if err != nil {
		return c, nil, fmt.Errorf("dashboard: %w", err)
	}
	return c, hidden, nil
}

// newBoard returns a board. list returns the databases that its pages list; nil if there is one.
func newBoard(c Config, hidden masks.Masks, list func() []Listed) *board {
	b := &board{acts: acts.New(c.Logger)}
	b.history = history.New(&b.current, c.Logger)
	b.pages = pages.New(pages.Config{Target: &b.current, Acts: b.acts, History: b.history, Prefix: c.Prefix, Logger: c.Logger, Masks: hidden, List: list})
	mux := http.NewServeMux()
	bound := access.NewBound()
	mux.Handle("/", bound.Of(b.pages))
	mux.Handle("/static/", b.pages)
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

// Close ends live updates, interrupts running actions after their current batch, and waits for them
// to end. Call it before http.Server.Shutdown, which waits for requests to end.
func (b *board) Close() {
	b.acts.Close()
	b.history.Close()
}

// Show makes the dashboard show an outbox instead of the previous one. The dashboard then samples
// the outbox every ten seconds until Close. release ends this, unless the dashboard shows another
// outbox by then.
func (b *board) Show(t Target) (release func()) {
	release = b.current.Show(t)
	b.history.Begin()
	return release
}

// Change replaces Config.Access from the next request on; requests in progress are not affected. If
// the new access has mistakes, Change returns them and keeps the previous access.
func (d *Dashboard) Change(a Access) error { return d.gate.Change(a) }

// ServeHTTP serves the pages and the API.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }
