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

// Config says who may do what. The zero value serves loopback addresses only, where everyone is
// the operator "local". With any of Users, Tokens and Proxy each request needs one of them.
type Config struct {
	// Address is the host and port at which the program listens, where it is known. Without
	// users, tokens, proxy and Authorize nothing is served if it is not a loopback address.
	Address string
	// Hosts are further names under which the dashboard is reached. Those that always are
	// right are localhost, loopback addresses, the address that a request was sent to, and
	// the host of Address. Other Host headers are refused, since a page of a stranger could
	// send them by DNS rebinding. With Authorize any host is right unless there are Hosts.
	Hosts []string
	// Users log in with HTTP Basic. The secret is a password, or its bcrypt hash
	// of a cost up to 14, which begins with $2; all hashes should have the same cost.
	Users map[string]Credential
	// Tokens are sent as Authorization: Bearer. The key is the name that is recorded with
	// actions; the secret has at least MinToken bytes.
	Tokens map[string]Credential
	// Proxy is one that authenticates its users.
	Proxy Proxy
	// Authorize decides in place of all that. It is called for each request, concurrently. An
	// error, which is logged, and a user without a role are answered with 403.
	Authorize func(*http.Request) (User, error)
}

// Credential is a secret, and what the one who has it may do.
type Credential struct {
	Secret string
	Role   Role
}

// Gate lets requests through to a handler. It is safe for concurrent use.
type Gate struct {
	next  http.Handler
	log   *slog.Logger
	cross *http.CrossOriginProtection
	rules atomic.Pointer[rules]
}

// rules are what a Gate decides by.
type rules struct {
	Config
	users  *users
	tokens *tokens
	// local says that everyone is an operator, and closed why nobody may do anything.
	local  bool
	closed string
}

// New returns a Gate before a handler, which finds the user by From. Refused requests are logged.
func New(c Config, next http.Handler, log *slog.Logger) (*Gate, error) {
	g := &Gate{next: next, log: log, cross: http.NewCrossOriginProtection()}
	return g, g.Change(c)
}

// Change makes the gate decide by another configuration from the next request on. Where that has
// mistakes, which are the error, the gate stays as it was. Counts of failed logins begin again.
func (g *Gate) Change(c Config) error {
	r := &rules{Config: c, local: len(c.Users)+len(c.Tokens)+len(c.Proxy.Networks) == 0}
	var faults [3]error
	a := newAttempts()
	r.users, faults[0] = newUsers(c.Users, a)
	r.tokens, faults[1] = newTokens(c.Tokens, a)
	faults[2] = c.Proxy.validate()
	if err := errors.Join(faults[:]...); err != nil {
		return err
	}
	switch {
	case c.Authorize != nil && !r.local:
		return errors.New("use either Authorize, or Users, Tokens and Proxy")
	case r.local && c.Authorize == nil && c.Address != "" && !isLoopback(hostOf(c.Address)):
		r.closed = "without users only metrics and probes are served here, since " + c.Address + " is not a loopback address: configure observe.auth, or listen at 127.0.0.1"
	}
	g.rules.Store(r)
	return nil
}

// policy lets pages use what comes from here, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"

// headers are on all answers. Strict-Transport-Security belongs to who terminates TLS.
var headers = map[string]string{
	"Content-Security-Policy":      policy,
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
	"Referrer-Policy":              "same-origin",
	"X-Content-Type-Options":       "nosniff",
}

// ServeHTTP lets a request through, with its user in the context, or refuses it. All but GET, HEAD
// and OPTIONS need an operator.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	user, err := g.admit(r)
	if err != nil {
		g.refuse(w, r, err)
		return
	}
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
		return User{}, refuse(http.StatusForbidden, "a request from a page of another origin")
	}
	user, err := rules.user(r)
	if err != nil {
		return User{}, err
	}
	if needed := needs(r.Method); !user.May(needed) {
		return User{}, refuse(http.StatusForbidden, fmt.Sprintf("%q is %s, and this is for the role %s", user.Name, user.Role, needed))
	}
	if client := rules.Proxy.client(r); user.Address == "" && client.IsValid() { // it is not where the server listens at a file
		user.Address = client.String()
	}
	return user, nil
}

// isEmbedded reports whether a page of another origin loads or fetches something from here: it may
// cost much, and the browser adds the password that it knows. A link is no such thing. Browsers
// say so to addresses with TLS and to loopback ones.
func isEmbedded(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
	}
	return false
}

// needs is the role that any request with a method needs.
func needs(method string) Role {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return Viewer
	}
	return Operator
}

// user is who makes a request.
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
	address := c.Proxy.client(r)
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return c.tokens.user(address, strings.TrimSpace(token))
	}
	if name, password, ok := r.BasicAuth(); ok {
		return c.users.user(r.Context(), address, name, password)
	}
	return User{}, c.unknown()
}

// unknown is the answer to requests that do not say whose they are.
func (c *rules) unknown() *refusal {
	switch {
	case len(c.Users) > 0:
		return &refusal{status: http.StatusUnauthorized, text: "log in", challenge: basicChallenge, quiet: true}
	case len(c.Tokens) > 0:
		return &refusal{status: http.StatusUnauthorized, text: "send a token", challenge: bearerChallenge, quiet: true}
	}
	return refuse(http.StatusForbidden, "this is reached through a proxy that authenticates its users")
}

// ofProxies are headers that only proxies add, beside X-Forwarded-…
var ofProxies = []string{"Cf-Connecting-Ip", "Forwarded", "True-Client-Ip", "Via", "X-Client-Ip", "X-Envoy-External-Address", "X-Real-Ip"}

// localUser is for addresses that only people on this machine reach. What came through a proxy
// may be from anywhere.
func localUser(r *http.Request) (User, error) {
	if local, ok := localAddress(r); !ok || !local.IsLoopback() || !remoteAddress(r).IsLoopback() {
		return User{}, refuse(http.StatusForbidden, "without users this is served to loopback addresses only")
	}
	for name := range r.Header { // also an empty one: the proxy may have added a second line
		if strings.HasPrefix(name, "X-Forwarded-") || slices.Contains(ofProxies, name) {
			return User{}, refuse(http.StatusForbidden, "the request came through a proxy ("+name+"): configure observe.auth, such as its proxy")
		}
	}
	return User{Name: "local", Role: Operator}, nil
}

// refusal is why a request is not let through.
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

// refuse answers and logs.
func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, err error) {
	why, ok := errors.AsType[*refusal](err)
	if !ok {
		return // the client is gone
	}
	if !why.quiet {
		g.log.Warn("a request to the dashboard is refused", "status", why.status, "reason", why.Error(),
			"address", g.rules.Load().Proxy.client(r).String(), "method", r.Method, "path", r.URL.Path)
	}
	answer(w, r, why)
}

// answer writes a refusal, as problem+json for the API.
func answer(w http.ResponseWriter, r *http.Request, why *refusal) {
	h := w.Header()
	if why.challenge != "" {
		h.Set("WWW-Authenticate", why.challenge)
	}
	if why.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int(why.after/time.Second)+1))
	}
	h.Set("Cache-Control", "no-store")
	if strings.HasPrefix(r.URL.Path, "/api/") {
		h.Set("Content-Type", "application/problem+json")
		w.WriteHeader(why.status)
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "about:blank", "title": http.StatusText(why.status), "status": why.status, "detail": why.text})
		return
	}
	http.Error(w, http.StatusText(why.status)+": "+why.text, why.status)
}

// localAddress is the one that a request was sent to; false if the server does not say.
func localAddress(r *http.Request) (netip.Addr, bool) {
	address, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return netip.Addr{}, false
	}
	at, err := netip.ParseAddrPort(address.String())
	return at.Addr().Unmap().WithZone(""), err == nil
}

// remoteAddress is the one that a request was sent from; the zero value is not known.
func remoteAddress(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}
