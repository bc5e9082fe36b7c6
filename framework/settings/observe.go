package settings

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/waybill-go/waybill/framework/route"
)

// Observe has the settings of the dashboard, metrics and probes; see packages observe and
// dashboard. With its zero value the dashboard serves loopback addresses only, and every visitor is
// an operator.
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
	// Parts of payloads that the dashboard and its API hide, also from operators: names of fields,
	// such as email, or number below card as card.number, by type (order.placed), by prefix of types
	// (order.*), or * for all types. It hides all values with these names, in any case and at any
	// depth, also in metadata and in the errors of receivers. A payload of such a type that is not
	// JSON is hidden completely. Default: none.
	//
	// A mask for one name of a type applies to its aliases, too.
	Masks map[string][]string `yaml:"masks"`
	// Serve profiles of the program at /debug/pprof/, for operators. SIGHUP does not change it.
	// Default false.
	Pprof bool `yaml:"pprof"`
}

// Auth sets who may use the dashboard.
type Auth struct {
	// People by login name, for HTTP Basic authentication.
	Users map[string]Login `yaml:"users"`
	// Programs by the name under which their actions are recorded.
	Tokens map[string]Token `yaml:"tokens" secret:"false"`
	// A reverse proxy that authenticates its users.
	Proxy Proxy `yaml:"proxy"`
}

// Role is what a user of the dashboard may do.
type Role string

// The roles. A user with another role may do nothing.
const (
	// Viewer may see everything except payloads, the texts of errors and the doctor's findings.
	Viewer Role = "viewer"
	// Operator may also see these, and act.
	Operator Role = "operator"
)

// Login is a person who logs in with a password. All hashes of passwords should have the same cost.
type Login struct {
	// Password, or its bcrypt hash as waybill config password prints it. Required.
	Password string `yaml:"password" secret:"true"`
	// A viewer sees everything except payloads, the texts of errors and the findings of the doctor;
	// an operator also sees these and can act. Default viewer.
	Role Role `yaml:"role" enum:"viewer,operator"`
}

// Token is a program that sends a token.
type Token struct {
	// Token that the program sends as Authorization: Bearer, at least 16 characters. Required.
	Token string `yaml:"token" secret:"true"`
	// Role of the program, as for users. Default viewer.
	Role Role `yaml:"role" enum:"viewer,operator"`
}

// Proxy is a reverse proxy that authenticates its users.
type Proxy struct {
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

// DefaultUserHeader is the default of Proxy.User.
const DefaultUserHeader = "X-Forwarded-User"

const (
	minToken = 16
	// maxCost limits the cost of bcrypt hashes: a comparison at cost 14 takes about a second.
	maxCost = 14
)

// WithDefaults returns the settings with the defaults of unset fields.
func (o Observe) WithDefaults() Observe {
	users, tokens := maps.Clone(o.Auth.Users), maps.Clone(o.Auth.Tokens)
	for name, u := range users {
		u.Role = cmp.Or(u.Role, Viewer)
		users[name] = u
	}
	for name, t := range tokens {
		t.Role = cmp.Or(t.Role, Viewer)
		tokens[name] = t
	}
	o.Auth.Users, o.Auth.Tokens = users, tokens
	if p := &o.Auth.Proxy; len(p.Networks) > 0 {
		p.User = cmp.Or(p.User, DefaultUserHeader)
	}
	return o
}

var (
	hostName   = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?$`)
	headerName = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]+$`)
	// hashed matches a bcrypt hash: version, cost, salt and hash.
	hashed = regexp.MustCompile(`^\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}$`)
)

// Validate reports all mistakes but those of the address, each with the key that it is about. It
// quotes no secrets.
func (o Observe) Validate() error {
	var m mistakes
	for i, host := range o.Hosts {
		_, err := netip.ParseAddr(strings.Trim(host, "[]"))
		m.unless(err == nil || hostName.MatchString(host), "hosts[%d] is %q: use a host without scheme and port, such as waybill.example", i, host)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Auth.Users)) {
		o.Auth.Users[name].validate(&m, "auth.users."+name, name)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Auth.Tokens)) {
		token := o.Auth.Tokens[name]
		at := "auth.tokens." + name
		m.unless(token.Token != "", "%s.token is missing", at)
		m.unless(token.Token == "" || len(token.Token) >= minToken, "%s.token is too short: use at least %d characters", at, minToken)
		token.Role.validate(&m, at)
	}
	o.Auth.Proxy.validate(&m)
	for _, pattern := range slices.Sorted(maps.Keys(o.Masks)) {
		m.unless(route.ValidatePattern(pattern) == nil, "masks.%s: use a type like order.placed, a prefix of types like order.*, or *", pattern)
		for i, mask := range o.Masks[pattern] {
			wrong := strings.ContainsAny(mask, "$[]*") || slices.Contains(strings.Split(mask, "."), "")
			m.unless(!wrong, "masks.%s[%d]: %q is not the name of a field: use one like email, or card.number for a number below card", pattern, i, mask)
		}
	}
	return errors.Join(m...)
}

// mistakes are the mistakes in settings.
type mistakes []error

func (m *mistakes) unless(ok bool, format string, args ...any) {
	if !ok {
		*m = append(*m, fmt.Errorf(format, args...))
	}
}

func (u Login) validate(m *mistakes, at, name string) {
	m.unless(name != "" && !strings.Contains(name, ":") && !strings.ContainsFunc(name, unicode.IsControl),
		"%s: use a login name without colons and control characters, of at least one character", at)
	m.unless(u.Password != "", "%s.password is missing", at)
	if strings.HasPrefix(u.Password, "$2") {
		parts := hashed.FindStringSubmatch(u.Password)
		m.unless(parts != nil, "%s.password begins like a bcrypt hash but is not one: waybill config password prints one", at)
		if parts != nil {
			cost, _ := strconv.Atoi(parts[1])
			m.unless(cost <= maxCost, "%s.password is a bcrypt hash of cost %d: use up to %d", at, cost, maxCost)
		}
	}
	u.Role.validate(m, at)
}

func (r Role) validate(m *mistakes, at string) {
	m.unless(r == "" || r == Viewer || r == Operator, "%s.role is %q: use %s or %s", at, r, Viewer, Operator)
}

func (p Proxy) validate(m *mistakes) {
	m.unless(p.User == "" || headerName.MatchString(p.User), "auth.proxy.user is %q: use the name of a header, such as %s", p.User, DefaultUserHeader)
	m.unless(p.Role == "" || headerName.MatchString(p.Role), "auth.proxy.role is %q: use the name of a header, such as %s", p.Role, DefaultUserHeader)
	m.unless(len(p.Networks) > 0 || p.User == "" && p.Role == "", "auth.proxy.networks is missing: name the networks that the proxy sends from")
}
