package access

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// checkHost refuses a request whose Host header is not a name of the dashboard.
func (c *rules) checkHost(r *http.Request) error {
	if c.authorize != nil && len(c.Hosts) == 0 {
		return nil
	}
	host := hostOf(r.Host)
	if isLoopback(host) || host != "" && host == hostOf(c.Address) || slices.ContainsFunc(c.Hosts, func(h string) bool { return hostOf(h) == host }) {
		return nil
	}
	if local, ok := localAddress(r); ok {
		if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap() == local {
			return nil
		}
	}
	return refuse(http.StatusForbidden, "the Host header is not a name of this dashboard: if it should be, add it to observe.hosts")
}

// hostOf returns a host without port and brackets, in lower case, without a dot at its end.
func hostOf(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// isLoopback reports whether a host without a port is a loopback address or localhost.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
