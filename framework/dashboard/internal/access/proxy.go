package access

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/settings"
)

// maxName limits the length of a name that a proxy sends, in bytes.
const maxName = 200

// proxy is a reverse proxy that authenticates its users.
type proxy settings.Proxy

// trusts reports whether an address is in the networks of the proxy.
func (p proxy) trusts(address netip.Addr) bool { return isIn(p.Networks, address) }

func isIn(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(address) })
}

// user returns the user that the proxy names; false if the request does not come from the proxy, or
// names no user.
func (p proxy) user(r *http.Request) (User, bool, error) {
	if !p.trusts(remoteAddress(r)) {
		return User{}, false, nil
	}
	names, roles := r.Header.Values(p.User), []string(nil)
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
		if strings.TrimSpace(group) == string(Operator) {
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
		if !isIn(c.Proxies, address) && !c.proxy.trusts(address) {
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
