package config

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/crypto/bcrypt"
)

// Observe has the settings of the dashboard, metrics and probes; see packages observe and
// dashboard.
type Observe struct {
	// Host and port at which waybill forward serves the dashboard, /metrics for Prometheus, /livez
	// (also /healthz) and /readyz, such as 127.0.0.1:8090. Without a host it listens on all of the
	// machine's addresses. Without auth, only loopback addresses serve the dashboard, and every
	// visitor is an operator. It is served from the start of the program, before the database can be
	// reached. SIGHUP does not change it. Default: none.
	Address string `yaml:"address"`
	// More host names of the dashboard, such as that of a proxy in front of it. Requests for other
	// hosts are refused, except for localhost, loopback addresses, the host of address, and the IP
	// address that the request was sent to.
	Hosts []string `yaml:"hosts"`
	// Networks of the reverse proxies in front of the dashboard, such as 10.1.2.3/32, that add the
	// client to X-Forwarded-For or replace the header. Failed logins then count for that client, and
	// actions are recorded with its address; otherwise both are the proxy's. It lets no one in: for
	// a proxy that authenticates its users see auth.proxy, whose networks count here too. SIGHUP
	// applies changes. Default: none.
	Proxies []netip.Prefix `yaml:"proxies"`
	// Who may use the dashboard. If users, tokens or proxy is set, each request must authenticate
	// with one of them. /metrics and the probes need no authentication. SIGHUP applies changes.
	Auth Auth `yaml:"auth"`
	// Parts of payloads that the dashboard and its API hide, also from operators: JSON paths such as
	// $.card.number, by type (order.placed), by prefix of types (order.*), or * for all types. A
	// path hides all values with these names, in any case and at any depth, also in metadata and in
	// the errors of receivers. A payload of such a type that is not JSON is hidden completely.
	// Default: none.
	Masks map[string][]string `yaml:"masks"`
	// Serve profiles of the program at /debug/pprof/, for operators. SIGHUP does not change it.
	// Default false.
	Pprof bool `yaml:"pprof"`
}

// Auth sets who may use the dashboard.
type Auth struct {
	// People by login name, for HTTP Basic authentication.
	Users map[string]AuthUser `yaml:"users"`
	// Programs by the name under which their actions are recorded.
	Tokens map[string]AuthToken `yaml:"tokens" secret:"false"`
	// A reverse proxy that authenticates its users.
	Proxy AuthProxy `yaml:"proxy"`
}

// Role is what a user of the dashboard may do.
type Role string

// The roles.
const (
	RoleViewer   Role = "viewer"
	RoleOperator Role = "operator"
)

// AuthUser is a person who logs in with a password.
type AuthUser struct {
	// Password, or its bcrypt hash as waybill config password prints it. Required.
	Password string `yaml:"password" secret:"true"`
	// A viewer sees everything except payloads, the texts of errors and the findings of the doctor;
	// an operator also sees these and can act. Default viewer.
	Role Role `yaml:"role" enum:"viewer,operator"`
}

// AuthToken is a program that sends a token.
type AuthToken struct {
	// Token that the program sends as Authorization: Bearer, at least 16 characters. Required.
	Token string `yaml:"token" secret:"true"`
	// Role of the program, as for users. Default viewer.
	Role Role `yaml:"role" enum:"viewer,operator"`
}

// AuthProxy is a reverse proxy that authenticates its users.
type AuthProxy struct {
	// Networks that the proxy sends from, such as 10.1.0.0/16 or 10.1.2.3/32. The headers below are
	// ignored in requests from elsewhere. Anything that can send from these networks can act as any
	// user.
	Networks []netip.Prefix `yaml:"networks"`
	// Header with the name of the user, which the proxy must overwrite on each request. Default
	// X-Forwarded-User.
	User string `yaml:"user"`
	// Header with the user's role or comma-separated groups, which the proxy must overwrite or
	// remove on each request. The value operator makes the user an operator; all others are viewers.
	// Default: none.
	Role string `yaml:"role"`
}

const (
	defaultUserHeader = "X-Forwarded-User"
	minToken          = 16
	// maxCost limits the cost of bcrypt hashes: 14 takes a second.
	maxCost = 14
)

// withDefaults returns a copy with defaults filled in.
func (o Observe) withDefaults() Observe {
	users, tokens := maps.Clone(o.Auth.Users), maps.Clone(o.Auth.Tokens)
	for name, u := range users {
		u.Role = cmp.Or(u.Role, RoleViewer)
		users[name] = u
	}
	for name, t := range tokens {
		t.Role = cmp.Or(t.Role, RoleViewer)
		tokens[name] = t
	}
	o.Auth.Users, o.Auth.Tokens = users, tokens
	if p := &o.Auth.Proxy; len(p.Networks) > 0 {
		p.User = cmp.Or(p.User, defaultUserHeader)
	}
	return o
}

func (l *loader) checkObserve(o Observe) {
	l.checkAddress(o.Address)
	l.checkServed(o)
	l.checkMasks(o.Masks)
	for i, host := range o.Hosts {
		at := "observe.hosts[" + strconv.Itoa(i) + "]"
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err != nil && !hostName.MatchString(host) && !l.reported(at) {
			l.mistake(at, "%s is %q: use a host without scheme and port, such as waybill.example", at, host)
		}
	}
	for name, u := range o.Auth.Users {
		l.checkUser(join("observe.auth.users", name), name, u)
	}
	for name, t := range o.Auth.Tokens {
		at := join("observe.auth.tokens", name) + ".token"
		switch {
		case l.reported(at):
		case t.Token == "":
			l.mistake(at, "%s is missing", at)
		case len(t.Token) < minToken:
			l.mistake(at, "%s is too short: use at least %d characters", at, minToken)
		}
	}
	l.checkProxy(o.Auth.Proxy)
}

func (l *loader) checkAddress(address string) {
	if address == "" || l.reported("observe.address") {
		return
	}
	_, port, err := net.SplitHostPort(address)
	if n, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil || n == 0 {
		l.mistake("observe.address", "observe.address is %q: use host:port, such as 127.0.0.1:8090", address)
	}
}

// checkServed reports settings of the dashboard that have no effect because nothing serves it.
func (l *loader) checkServed(o Observe) {
	if o.Address != "" || l.reported("observe.address") {
		return
	}
	var unused []string
	for name, is := range map[string]bool{
		"hosts": len(o.Hosts) > 0, "proxies": len(o.Proxies) > 0, "auth": !reflect.ValueOf(o.Auth).IsZero(), "masks": len(o.Masks) > 0, "pprof": o.Pprof,
	} {
		if is && !l.reported("observe."+name) {
			unused = append(unused, "observe."+name)
		}
	}
	if slices.Sort(unused); len(unused) > 0 {
		l.mistake("observe.address", "observe.address is missing, so nothing serves the dashboard: write one, such as 127.0.0.1:8090, or remove %s", strings.Join(unused, ", "))
	}
}

var (
	hostName   = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?$`)
	headerName = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]+$`)
	// hashed matches a bcrypt hash: version, cost, salt and hash.
	hashed = regexp.MustCompile(`^\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}$`)
)

func (l *loader) checkUser(at, name string, u AuthUser) {
	password := at + ".password"
	if name == "" || strings.Contains(name, ":") || strings.ContainsFunc(name, unicode.IsControl) {
		l.mistake(at, "%s: use a login name without colons and control characters, of at least one character", at)
	}
	switch {
	case l.reported(password):
	case u.Password == "":
		l.mistake(password, "%s is missing", password)
	case strings.HasPrefix(u.Password, "$2"):
		cost, err := bcrypt.Cost([]byte(u.Password))
		switch {
		case err != nil || !hashed.MatchString(u.Password):
			l.mistake(password, "%s begins like a bcrypt hash but is not one: waybill config password prints one", password)
		case cost > maxCost:
			l.mistake(password, "%s is a bcrypt hash of cost %d: use up to %d", password, cost, maxCost)
		}
	}
}

func (l *loader) checkProxy(p AuthProxy) {
	const at = "observe.auth.proxy"
	for name, header := range map[string]string{"user": p.User, "role": p.Role} {
		if key := join(at, name); header != "" && !headerName.MatchString(header) && !l.reported(key) {
			l.mistake(key, "%s is %q: use the name of a header, such as %s", key, header, defaultUserHeader)
		}
	}
	switch {
	case l.reported(at + ".networks"):
	case len(p.Networks) == 0 && (p.User != "" || p.Role != ""):
		l.mistake(at+".networks", "%s.networks is missing: name the networks that the proxy sends from", at)
	}
}
