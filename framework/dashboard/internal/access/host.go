package access

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// checkHost refuses a request that was sent to another name than ours.
func (c *rules) checkHost(r *http.Request) error {
	if c.Authorize != nil && len(c.Hosts) == 0 {
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
	return refuse(http.StatusForbidden, "the Host of the request is none of this dashboard's: add it to observe.hosts if it is right")
}

// hostOf is a host without its port, in one form: lower case, no brackets, no dot at its end.
func hostOf(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// isLoopback is about a host without its port.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
