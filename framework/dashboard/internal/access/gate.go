package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Config sets who may do what. The zero value serves only loopback addresses, and every visitor is
// the operator "local". If Users, Tokens or Proxy is set, each request needs a user of one of them.
type Config struct {
	// Address is the host and port at which the program listens; "" if it is not known. If it is
	// not a loopback address, the dashboard serves nothing without users, tokens, a proxy or
	// Authorize.
	Address string
	// Hosts are additional host names of the dashboard. localhost, loopback addresses, the address
	// to which a request was sent, and the host of Address are always accepted. Requests with
	// other Host headers are refused, as a protection against DNS rebinding. With Authorize, any
	// host is accepted if Hosts is empty.
	Hosts []string
	// Users log in with HTTP Basic authentication. The key is the user's name. The secret is a
	// password, or its bcrypt hash ($2…) with a cost of at most 14. All hashes should have the
	// same cost.
	Users map[string]Credential
	// Tokens are sent as Authorization: Bearer. The key is the name that is recorded with
	// actions; the secret must have at least MinToken bytes.
	Tokens map[string]Credential
	// Proxies are the networks of reverse proxies whose X-Forwarded-For is believed, besides those
	// of Proxy: failed logins count for the client that it names, and actions are recorded with
	// it. Such a proxy must append to the header or replace it.
	Proxies []netip.Prefix
	// Proxy is a reverse proxy that authenticates its users.
	Proxy Proxy
	// Authorize replaces Users, Tokens and Proxy. It is called for each request, concurrently. If
	// it returns an error, which is logged, or a user without a role, the answer is 403.
	Authorize func(*http.Request) (User, error)
}

// Credential is a secret, and the role of a user who has it.
type Credential struct {
	Secret string
	Role   Role
}

// Gate passes authorized requests on to a handler. It is safe for concurrent use.
type Gate struct {
	next  http.Handler
	log   *slog.Logger
	cross *http.CrossOriginProtection
	rules atomic.Pointer[rules]
	// attempts are counted for all users, also over changes of the rules.
	attempts *attempts
}

// rules are the rules of a Gate.
type rules struct {
	Config
	users  *users
	tokens tokens
	// local says that every visitor is an operator. closed is why all requests are refused; "" if
	// they are not.
	local  bool
	closed string
}

// New returns a Gate in front of a handler, which gets the user with From. The gate logs the
// requests that it refuses.
func New(c Config, next http.Handler, log *slog.Logger) (*Gate, error) {
	g := &Gate{next: next, log: log, cross: http.NewCrossOriginProtection(), attempts: newAttempts()}
	return g, g.Change(c)
}

// Change replaces the configuration from the next request on. If it has mistakes, Change returns
// them and changes nothing.
func (g *Gate) Change(c Config) error {
	r := &rules{Config: c, local: len(c.Users)+len(c.Tokens)+len(c.Proxy.Networks) == 0}
	var faults [3]error
	r.users, faults[0] = newUsers(c.Users, g.attempts)
	r.tokens, faults[1] = newTokens(c.Tokens)
	faults[2] = c.Proxy.validate()
	if err := errors.Join(faults[:]...); err != nil {
		return err
	}
	switch {
	case c.Authorize != nil && !r.local:
		return errors.New("use either Authorize, or Users, Tokens and Proxy")
	case r.local && c.Authorize == nil && c.Address != "" && !isLoopback(hostOf(c.Address)):
		r.closed = "without users, only metrics and probes are served here, since " + c.Address + " is not a loopback address: configure observe.auth, or listen at 127.0.0.1"
	}
	g.rules.Store(r)
	return nil
}

// policy allows pages to load only from the dashboard itself.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"

// headers are set on all answers. Strict-Transport-Security is up to the server that terminates TLS.
var headers = map[string]string{
	"Content-Security-Policy":      policy,
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
	"Referrer-Policy":              "same-origin",
	"X-Content-Type-Options":       "nosniff",
}

// ServeHTTP passes on a request with its user in the context, or refuses it. Methods other than
// GET, HEAD and OPTIONS need an operator.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	user, err := g.admit(r)
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	user.remember(w, r)
	g.next.ServeHTTP(w, r.WithContext(With(r.Context(), user)))
}

func (g *Gate) admit(r *http.Request) (User, error) {
	rules := g.rules.Load()
	if rules.closed != "" {
		return User{}, refuse(http.StatusForbidden, rules.closed)
	}
	if err := rules.checkHost(r); err != nil {
		return User{}, err
	}
	if err := g.cross.Check(r); err != nil || isEmbedded(r) {
		return User{}, refuse(http.StatusForbidden, "the request comes from a page of another origin")
	}
	user, err := rules.user(r)
	if err != nil {
		return User{}, err
	}
	if needed := needs(r.Method); !user.May(needed) {
		return User{}, refuse(http.StatusForbidden, fmt.Sprintf("%q has the role %s, and this needs the role %s", user.Name, user.Role, needed))
	}
	if client := rules.client(r); user.Address == "" && client.IsValid() { // it is invalid if the server listens at a Unix socket
		user.Address = client.String()
	}
	return user, nil
}

// isEmbedded reports whether a page of another origin loads or fetches something from the
// dashboard. The browser would add the user's password, and the request may be expensive. Links to
// the dashboard are allowed. Browsers send these headers only over TLS and to loopback addresses.
func isEmbedded(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
	}
	return false
}

// needs returns the role that a method needs.
func needs(method string) Role {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return Viewer
	}
	return Operator
}

// user returns the user who makes a request.
func (c *rules) user(r *http.Request) (User, error) {
	switch {
	case c.Authorize != nil:
		user, err := c.Authorize(r)
		if err != nil {
			return User{}, &refusal{status: http.StatusForbidden, text: "you may not use this", cause: err}
		}
		return user, nil
	case c.local:
		return localUser(r)
	}
	if user, ok, err := c.Proxy.user(r); ok || err != nil {
		return user, err
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return c.tokens.user(strings.TrimSpace(token))
	}
	if name, password, ok := r.BasicAuth(); ok {
		return c.users.user(r, c.client(r), name, password)
	}
	return User{}, c.unknown()
}

// unknown returns the refusal of requests without credentials.
func (c *rules) unknown() *refusal {
	switch {
	case len(c.Users) > 0:
		return &refusal{status: http.StatusUnauthorized, text: "log in", challenge: basicChallenge, quiet: true}
	case len(c.Tokens) > 0:
		return &refusal{status: http.StatusUnauthorized, text: "send a token", challenge: bearerChallenge, quiet: true}
	}
	return refuse(http.StatusForbidden, "use the proxy that authenticates users")
}

// ofProxies are headers that only proxies add, besides X-Forwarded-…
var ofProxies = []string{"Cf-Connecting-Ip", "Forwarded", "True-Client-Ip", "Via", "X-Client-Ip", "X-Envoy-External-Address", "X-Real-Ip"}

// localUser accepts requests from this machine. A request that came through a proxy may come from
// anywhere, so it is refused.
func localUser(r *http.Request) (User, error) {
	if local, ok := localAddress(r); !ok || !local.IsLoopback() || !remoteAddress(r).IsLoopback() {
		return User{}, refuse(http.StatusForbidden, "without users, only loopback addresses are served")
	}
	for name := range r.Header { // an empty header counts, too: the proxy may have added a second line
		if strings.HasPrefix(name, "X-Forwarded-") || slices.Contains(ofProxies, name) {
			return User{}, refuse(http.StatusForbidden, "the request came through a proxy ("+name+"): configure observe.auth, such as observe.auth.proxy")
		}
	}
	return User{Name: "local", Role: Operator}, nil
}

// refusal is why a request is refused.
type refusal struct {
	status    int
	text      string
	cause     error         // for the log only
	challenge string        // of a 401
	after     time.Duration // of a 429 or 503
	quiet     bool          // not logged
}

func refuse(status int, text string) *refusal { return &refusal{status: status, text: text} }

func (r *refusal) Error() string {
	if r.cause != nil {
		return r.cause.Error()
	}
	return r.text
}

const (
	basicChallenge  = `Basic realm="waybill", charset="UTF-8"`
	bearerChallenge = `Bearer realm="waybill"`
)

// refuse answers a refused request and logs it.
func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, err error) {
	why, ok := errors.AsType[*refusal](err)
	if !ok {
		return // the client is gone
	}
	if !why.quiet {
		g.log.Warn("a request to the dashboard was refused", "status", why.status, "reason", why.Error(),
			"address", g.rules.Load().client(r).String(), "method", r.Method, "path", r.URL.Path)
	}
	answer(w, r, why)
}

// answer writes a refusal: problem+json below /api/, otherwise plain text.
func answer(w http.ResponseWriter, r *http.Request, why *refusal) {
	h := w.Header()
	if why.challenge != "" {
		h.Set("WWW-Authenticate", why.challenge)
	}
	if why.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int(why.after/time.Second)+1))
	}
	h.Set("Cache-Control", "no-store")
	if strings.Contains(r.URL.Path, "/api/") {
		h.Set("Content-Type", "application/problem+json")
		w.WriteHeader(why.status)
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "about:blank", "title": http.StatusText(why.status), "status": why.status, "detail": why.text})
		return
	}
	http.Error(w, http.StatusText(why.status)+": "+why.text, why.status)
}

// localAddress returns the address to which a request was sent; false if it is not known.
func localAddress(r *http.Request) (netip.Addr, bool) {
	address, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return netip.Addr{}, false
	}
	at, err := netip.ParseAddrPort(address.String())
	return at.Addr().Unmap().WithZone(""), err == nil
}

// remoteAddress returns the address that sent a request; the zero value if it is not known.
func remoteAddress(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}
