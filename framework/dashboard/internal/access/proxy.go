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

// DefaultUserHeader is the default of Proxy.User.
const DefaultUserHeader = "X-Forwarded-User"

// maxName limits the length of a name that a proxy sends, in bytes.
const maxName = 200

// Proxy is a reverse proxy that authenticates its users and names them in a header. It must set
// or remove both headers on each request, so that its client cannot set them.
type Proxy struct {
	// Networks are the networks of the proxy. Every client there can claim to be any user. The
	// headers of requests from elsewhere are ignored. Empty means that there is no proxy.
	Networks []netip.Prefix
	// User is the header with the user's name; the default is DefaultUserHeader.
	User string
	// Role is the header with a role, or with groups separated by commas. The value operator makes
	// the user an operator. Users with other values, and all without a header, are viewers.
	Role string
}

func (p Proxy) validate() error {
	if len(p.Networks) == 0 && (p.User != "" || p.Role != "") {
		return errors.New("proxy has no networks: name those of the proxy")
	}
	return nil
}

// trusts reports whether an address is in the networks of the proxy.
func (p Proxy) trusts(address netip.Addr) bool { return isIn(p.Networks, address) }

func isIn(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(address) })
}

// user returns the user that the proxy names; false if the request does not come from the proxy, or
// names no user.
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
		return User{}, false, refuse(http.StatusForbidden, "the proxy sent its header of the user or of the role twice: it must replace headers of its client")
	case len(names) == 0 || names[0] == "":
		return User{}, false, nil
	case len(names[0]) > maxName || !utf8.ValidString(names[0]) || strings.ContainsFunc(names[0], unicode.IsControl):
		return User{}, false, refuse(http.StatusForbidden, "the user's name is too long or has invalid characters")
	}
	user := User{Name: names[0], Role: Viewer}
	if len(roles) == 1 && isOperator(roles[0]) {
		user.Role = Operator
	}
	return user, true, nil
}

func isOperator(groups string) bool {
	for group := range strings.SplitSeq(groups, ",") {
		if strings.TrimSpace(group) == Operator.String() {
			return true
		}
	}
	return false
}

// client returns the address of the client. It believes the X-Forwarded-For of proxies.
func (c *rules) client(r *http.Request) netip.Addr {
	address := remoteAddress(r)
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		if !isIn(c.Proxies, address) && !c.Proxy.trusts(address) {
			break
		}
		next, ok := hopOf(strings.TrimSpace(hop))
		if !ok {
			break
		}
		address = next
	}
	return address
}

// hopOf reads an address of X-Forwarded-For, to which some proxies add the port.
func hopOf(text string) (netip.Addr, bool) {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().Unmap().WithZone(""), true
	}
	at, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return at.Unmap().WithZone(""), err == nil
}
