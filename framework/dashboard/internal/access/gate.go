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

	"github.com/waybill-go/waybill/framework/settings"
)

// Gate passes authorized requests on to a handler. It is safe for concurrent use.
type Gate struct {
	next  http.Handler
	log   *slog.Logger
	cross *http.CrossOriginProtection
	// authorize replaces the users of the settings; nil if they count.
	authorize Authorize
	rules     atomic.Pointer[rules]
	// attempts are counted for all users, also over changes of the rules.
	attempts *attempts
}

// Authorize returns the user of a request, or why the request is refused. It is called concurrently.
type Authorize func(*http.Request) (User, error)

// rules are the rules of a Gate.
type rules struct {
	settings.Observe
	proxy     proxy
	authorize Authorize
	users     *users
	tokens    tokens
	// local says that every visitor is an operator. closed is why all requests are refused; "" if
	// they are not.
	local  bool
	closed string
}

// New returns a Gate in front of a handler, which gets the user with From. The gate logs the
// requests that it refuses. authorize may be nil.
func New(o settings.Observe, authorize Authorize, next http.Handler, log *slog.Logger) (*Gate, error) {
	g := &Gate{next: next, log: log, cross: http.NewCrossOriginProtection(), authorize: authorize, attempts: newAttempts()}
	return g, g.Change(o)
}

// Change replaces the settings from the next request on. If they have mistakes, Change returns
// them and changes nothing.
func (g *Gate) Change(o settings.Observe) error {
	if err := o.Validate(); err != nil {
		return err
	}
	o = o.WithDefaults()
	r := &rules{Observe: o, proxy: proxy(o.Auth.Proxy), authorize: g.authorize, tokens: newTokens(o.Auth.Tokens)}
	r.local = len(o.Auth.Users)+len(o.Auth.Tokens)+len(o.Auth.Proxy.Networks) == 0
	var err error
	if r.users, err = newUsers(o.Auth.Users, g.attempts); err != nil {
		return err
	}
	switch {
	case g.authorize != nil && !r.local:
		return errors.New("use either Authorize or Auth")
	case r.local && g.authorize == nil && o.Address != "" && !isLoopback(hostOf(o.Address)):
		r.closed = "without users, only metrics and probes are served here, since " + o.Address + " is not a loopback address: configure observe.auth, or listen at 127.0.0.1"
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
func needs(method string) settings.Role {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return Viewer
	}
	return Operator
}

// user returns the user who makes a request.
func (c *rules) user(r *http.Request) (User, error) {
	switch {
	case c.authorize != nil:
		user, err := c.authorize(r)
		if err != nil {
			return User{}, &refusal{status: http.StatusForbidden, text: "you may not use this", cause: err}
		}
		return user, nil
	case c.local:
		return localUser(r)
	}
	if user, ok, err := c.proxy.user(r); ok || err != nil {
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
	case len(c.Auth.Users) > 0:
		return &refusal{status: http.StatusUnauthorized, text: "log in", challenge: basicChallenge, quiet: true}
	case len(c.Auth.Tokens) > 0:
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
