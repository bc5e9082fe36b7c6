package httpsink

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// guard refuses connections into private networks, so that an address that
// comes from data cannot make Waybill talk to what only Waybill can reach. It
// sees the address that is dialled, after the name was resolved: a name that
// changes between a check and its use changes nothing.
type guard struct{ allowed []netip.Prefix }

// guardError is a connection that a guard refused.
type guardError struct {
	address netip.Addr
	reason  string
}

func (e *guardError) Error() string {
	return fmt.Sprintf("%s is %s, where the guard lets nothing through; guard.allow makes exceptions", e.address, e.reason)
}

// control has the form of net.Dialer.ControlContext, which runs for each
// resolved address before it is connected to.
func (g *guard) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err) // the resolver's is one
	}
	return g.check(to.Addr())
}

// dialFunc opens a TCP connection.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// newTCP returns how TCP connections are opened: by the program's function if it gives one,
// through the guard if there is one.
func newTCP(own dialFunc, g *guard) dialFunc {
	switch {
	case own != nil && g != nil:
		return g.through(own)
	case own != nil:
		return own
	case g != nil:
		return (&net.Dialer{ControlContext: g.control}).DialContext
	}
	return new(net.Dialer).DialContext
}

// through has dial connect to addresses that the guard lets through, and never to a name,
// which dial could resolve to something else. The addresses of a name are tried in their
// order, each for its share of the time that is left.
func (g *guard) through(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, err
		}
		var first error
		for i, to := range found {
			conn, err := g.try(ctx, dial, network, to, port, len(found)-i)
			if err == nil {
				return conn, nil
			}
			first = cmp.Or(first, err)
		}
		return nil, first
	}
}

// try connects to one address, the first of as many as are left.
func (g *guard) try(ctx context.Context, dial dialFunc, network string, to netip.Addr, port string, left int) (net.Conn, error) {
	if err := g.check(to); err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		share, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
		ctx = share
	}
	return dial(ctx, network, net.JoinHostPort(to.Unmap().String(), port))
}

func (g *guard) check(address netip.Addr) error {
	address = address.WithZone("")
	forms := []netip.Addr{address}
	if inner, ok := embedded(address); ok {
		forms = append(forms, inner)
	}
	for _, form := range forms {
		for _, prefix := range g.allowed {
			if prefix.Contains(form) {
				return nil
			}
		}
	}
	// The form inside counts: behind a translation it is where packets go.
	if reason := private(forms[len(forms)-1]); reason != "" {
		return &guardError{address, reason}
	}
	return nil
}

// nat64 translates to IPv4 (RFC 6052). Names that have IPv4 addresses only
// resolve to it in networks without IPv4.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// embedded returns the IPv4 address of an IPv6 address that only carries one:
// mapped, or translated by NAT64.
func embedded(address netip.Addr) (netip.Addr, bool) {
	switch {
	case address.Is4In6():
		return address.Unmap(), true
	case nat64.Contains(address):
		bytes := address.As16()
		return netip.AddrFrom4([4]byte(bytes[12:])), true
	}
	return netip.Addr{}, false
}

// network is a range that no public server has.
type network struct {
	prefix netip.Prefix
	reason string
}

// From IANA's registries of special-purpose addresses, and the one address of a
// cloud's metadata service that looks public. The other ones are link-local
// (169.254.169.254), shared (100.100.100.200) or unique local (fd00:ec2::254).
var networks = []network{
	{netip.MustParsePrefix("0.0.0.0/8"), "this host"},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private network"},
	{netip.MustParsePrefix("100.64.0.0/10"), "a provider's shared network"},
	{netip.MustParsePrefix("127.0.0.0/8"), "this host"},
	{netip.MustParsePrefix("168.63.129.16/32"), "a cloud's metadata service"},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local network"},
	{netip.MustParsePrefix("172.16.0.0/12"), "a private network"},
	{netip.MustParsePrefix("192.0.0.0/24"), "a protocol's own network"},
	{netip.MustParsePrefix("192.0.2.0/24"), "a network for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private network"},
	{netip.MustParsePrefix("198.18.0.0/15"), "a network for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "a network for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "a network for documentation"},
	{netip.MustParsePrefix("224.0.0.0/3"), "multicast or reserved"}, // to the broadcast address
	{netip.MustParsePrefix("::/127"), "this host"},
	{netip.MustParsePrefix("2001::/23"), "a protocol's own network"}, // Teredo among them
	{netip.MustParsePrefix("2001:db8::/32"), "a network for documentation"},
	{netip.MustParsePrefix("2002::/16"), "a relay"}, // 6to4: carries any IPv4 address
	{netip.MustParsePrefix("3fff::/20"), "a network for documentation"},
	{netip.MustParsePrefix("fc00::/7"), "a private network"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local network"},
}

// global is all of IPv6 that is given to public networks (RFC 4291).
var global = netip.MustParsePrefix("2000::/3")

// private returns why an address is not a public server's, "" if it may be.
func private(address netip.Addr) string {
	for _, n := range networks {
		if n.prefix.Contains(address) {
			return n.reason
		}
	}
	if address.Is6() && !global.Contains(address) {
		return "outside the public networks"
	}
	return ""
}
