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

// Observe is where a forwarder is looked at; see packages observe and dashboard.
type Observe struct {
	Address string              `yaml:"address" doc:"host and port at which waybill forward serves the dashboard, /metrics for Prometheus, /livez (and /healthz) and /readyz, such as 127.0.0.1:8090; a host that is left out is all of the machine's. Without auth the dashboard is served at loopback addresses only, where everybody is an operator. It counts from the start of the program, before the database can be reached, and does not change with SIGHUP. Default: none"`
	Hosts   []string            `yaml:"hosts" doc:"further names under which the dashboard is reached, such as that of a proxy before it; requests for others are refused. Always right are localhost, loopback addresses, the host of address, and the IP address that a request was sent to"`
	Auth    Auth                `yaml:"auth" doc:"who may use the dashboard: with any of users, tokens and proxy each request needs one of them. /metrics and probes need none. SIGHUP takes changes over"`
	Masks   map[string][]string `yaml:"masks" doc:"what the dashboard and its API do not show of payloads, also to operators: JSON paths such as $.card.number, by type (order.placed), beginning of types (order.*) or * for all. A payload of such a type that is not JSON is not shown at all. Default: none"`
	Types   bool                `yaml:"types" doc:"count in waybill_published_total{type} what the schedules of this configuration publish; up to 100 types, the others as _other. It does not change with SIGHUP. Default false"`
	Pprof   bool                `yaml:"pprof" doc:"serve profiles of the program at /debug/pprof/, for operators; it does not change with SIGHUP. Default false"`
}

// Auth says who may use the dashboard.
type Auth struct {
	Users  map[string]AuthUser  `yaml:"users" doc:"people by the names with which they log in, by HTTP Basic"`
	Tokens map[string]AuthToken `yaml:"tokens" secret:"false" doc:"programs by the names that are recorded with what they do"`
	Proxy  AuthProxy            `yaml:"proxy" doc:"a reverse proxy that authenticates its users"`
}

// Role is what a user of the dashboard may do.
type Role string

// The roles that there are.
const (
	RoleViewer   Role = "viewer"
	RoleOperator Role = "operator"
)

// AuthUser is a person who logs in with a password.
type AuthUser struct {
	Password string `yaml:"password" secret:"true" doc:"the password, or its bcrypt hash as waybill config password prints it. Required"`
	Role     Role   `yaml:"role" enum:"viewer,operator" doc:"viewer looks at all but payloads; operator acts too, and looks at payloads. Default viewer"`
}

// AuthToken is a program that sends a token.
type AuthToken struct {
	Token string `yaml:"token" secret:"true" doc:"what it sends as Authorization: Bearer, at least 16 characters. Required"`
	Role  Role   `yaml:"role" enum:"viewer,operator" doc:"as that of a user. Default viewer"`
}

// AuthProxy is a reverse proxy that authenticates its users.
type AuthProxy struct {
	Networks  []netip.Prefix `yaml:"networks" doc:"networks from which its requests come, such as 10.1.0.0/16 or 10.1.2.3/32; requests from elsewhere have their headers ignored. Whatever can send from there can be any user"`
	User      string         `yaml:"user" doc:"header with the name of the user, which the proxy must replace on each request. Default X-Forwarded-User"`
	Role      string         `yaml:"role" doc:"header with the user's role, or groups with commas between them, which the proxy must replace or remove on each request. Without it all are viewers. Default: none"`
	Operators []string       `yaml:"operators" doc:"values of that header that make an operator; all others make a viewer. Default: operator"`
}

const (
	defaultUserHeader = "X-Forwarded-User"
	minToken          = 16
	// maxCost bounds bcrypt's: 14 takes a second.
	maxCost = 14
)

// withDefaults is a copy in which what was left out is filled in.
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
		if p.Role != "" && len(p.Operators) == 0 {
			p.Operators = []string{string(RoleOperator)}
		}
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

// checkServed reports what the dashboard is told although nothing serves it.
func (l *loader) checkServed(o Observe) {
	if o.Address != "" || l.reported("observe.address") {
		return
	}
	var told []string
	for name, is := range map[string]bool{
		"hosts": len(o.Hosts) > 0, "auth": !reflect.ValueOf(o.Auth).IsZero(), "masks": len(o.Masks) > 0, "pprof": o.Pprof,
	} {
		if is && !l.reported("observe."+name) {
			told = append(told, "observe."+name)
		}
	}
	if slices.Sort(told); len(told) > 0 {
		l.mistake("observe.address", "observe.address is missing, so nothing serves the dashboard: write one, such as 127.0.0.1:8090, or remove %s", strings.Join(told, ", "))
	}
}

var (
	hostName   = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?$`)
	headerName = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]+$`)
	// hashed is what bcrypt makes: version, cost, salt and hash.
	hashed = regexp.MustCompile(`^\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}$`)
)

func (l *loader) checkUser(at, name string, u AuthUser) {
	password := at + ".password"
	if name == "" || strings.Contains(name, ":") || strings.ContainsFunc(name, unicode.IsControl) {
		l.mistake(at, "%s: a name with a colon in it cannot log in", at)
	}
	switch {
	case l.reported(password):
	case u.Password == "":
		l.mistake(password, "%s is missing", password)
	case strings.HasPrefix(u.Password, "$2"):
		cost, err := bcrypt.Cost([]byte(u.Password))
		switch {
		case err != nil || !hashed.MatchString(u.Password):
			l.mistake(password, "%s begins like a bcrypt hash and is none: waybill config password prints one", password)
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
	case len(p.Networks) == 0 && (p.User != "" || p.Role != "" || len(p.Operators) > 0):
		l.mistake(at+".networks", "%s.networks is missing: from where does the proxy send?", at)
	case len(p.Operators) > 0 && p.Role == "":
		l.mistake(at+".role", "%s.role is missing: which header has what operators names?", at)
	}
	if slices.Contains(p.Operators, "") {
		l.mistake(at+".operators", "%s.operators: one of them is empty", at)
	}
}
