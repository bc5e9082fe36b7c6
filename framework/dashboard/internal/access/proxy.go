package access

import (
	"cmp"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// DefaultUserHeader is the Proxy.User of a proxy that has none.
const DefaultUserHeader = "X-Forwarded-User"

// maxName bounds the name that a proxy gives.
const maxName = 200

// Proxy is a reverse proxy that authenticates its users and names them in a header. It must set
// or remove both headers on each request, whatever its client sent.
type Proxy struct {
	// Networks are those that the proxy's requests come from: anybody there can be anyone.
	// The headers of all others are not looked at. None: there is no such proxy.
	Networks []netip.Prefix
	// User is the header with the user's name; default: DefaultUserHeader.
	User string
	// Role is the header with a role, or with groups and commas between them. Without it
	// each user is a viewer.
	Role string
	// Operators are the values of Role that make an operator; default: operator. All others
	// make a viewer.
	Operators []string
}

func (p Proxy) validate() error {
	switch {
	case len(p.Networks) == 0 && (p.User != "" || p.Role != "" || len(p.Operators) > 0):
		return errors.New("proxy has no networks, and so nobody comes through it")
	case len(p.Operators) > 0 && p.Role == "":
		return errors.New("proxy has operators, and no role: name the header that has them")
	}
	return nil
}

// trusts reports whether an address is the proxy's.
func (p Proxy) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(p.Networks, func(n netip.Prefix) bool { return n.Contains(address) })
}

// user is the one that the proxy names; false if the request came from elsewhere, or has no name.
func (p Proxy) user(r *http.Request) (User, bool, error) {
	if !p.trusts(remoteAddress(r)) {
		return User{}, false, nil
	}
	names, roles := r.Header.Values(cmp.Or(p.User, DefaultUserHeader)), []string(nil)
	if p.Role != "" {
		roles = r.Header.Values(p.Role)
	}
	switch {
	case len(names) > 1 || len(roles) > 1:
		return User{}, false, refuse(http.StatusForbidden, "the proxy's header of the user, or of the role, is there twice: it has to replace what its client sends")
	case len(names) == 0 || names[0] == "":
		return User{}, false, nil
	case len(names[0]) > maxName || !utf8.ValidString(names[0]) || strings.ContainsFunc(names[0], unicode.IsControl):
		return User{}, false, refuse(http.StatusForbidden, "the name of the user is too long, or no text")
	}
	user := User{Name: names[0], Role: Viewer}
	if len(roles) == 1 && p.isOperator(roles[0]) {
		user.Role = Operator
	}
	return user, true, nil
}

func (p Proxy) isOperator(groups string) bool {
	operators := p.Operators
	if len(operators) == 0 {
		operators = []string{Operator.String()}
	}
	for group := range strings.SplitSeq(groups, ",") {
		if slices.Contains(operators, strings.TrimSpace(group)) {
			return true
		}
	}
	return false
}

// client is the address that a request comes from. What the proxy says about that is believed.
func (p Proxy) client(r *http.Request) netip.Addr {
	address := remoteAddress(r)
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		if !p.trusts(address) {
			break
		}
		next, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			break
		}
		address = next.Unmap().WithZone("")
	}
	return address
}
