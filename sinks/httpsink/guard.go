package httpsink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// guard refuses connections to private networks, so that a host that comes from data cannot
// make Waybill connect to servers that only Waybill can reach. It checks the address that is
// dialled, after the name was resolved, so a name cannot change between the check and its use.
type guard struct{ allowed []netip.Prefix }

// guardError means that a guard refused a connection.
type guardError struct {
	address netip.Addr
	reason  string
}

// ErrGuarded: the guard refuses to connect to an address.
var ErrGuarded = errors.New("the guard refuses the address")

// Is reports that the error is ErrGuarded.
func (e *guardError) Is(target error) bool { return target == ErrGuarded }

func (e *guardError) Error() string {
	return fmt.Sprintf("%s is %s, which the guard refuses; guard.allow makes exceptions", e.address, e.reason)
}

// control is a net.Dialer.ControlContext, which is called for each resolved address before the
// connection is made.
func (g *guard) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err) // does not happen for resolved addresses
	}
	return g.check(to.Addr())
}

// dialFunc opens a TCP connection.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// newTCP returns the function that opens TCP connections. It uses the program's function and
// the guard, if they are not nil.
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

// through returns a function that resolves names, and calls dial for addresses that the guard
// allows. It never passes a name to dial, which could resolve it differently. It tries the
// addresses of a name in order, each for its share of the remaining time.
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

// try connects to one address. left is the number of addresses that are left, including this
// one.
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
	// An embedded address counts, because that is where packets go after translation.
	if reason := private(forms[len(forms)-1]); reason != "" {
		return &guardError{address, reason}
	}
	return nil
}

// nat64 is the prefix of IPv4 addresses that are translated (RFC 6052). In networks without
// IPv4, names that have only IPv4 addresses resolve to it.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// embedded returns the IPv4 address in an IPv6 address: a mapped one, or one that is translated
// by NAT64.
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

// network is a range without public servers.
type network struct {
	prefix netip.Prefix
	reason string
}

// networks are from IANA's registries of special-purpose addresses, plus the one address of a
// cloud's metadata service that looks public. The addresses of other such services are
// link-local (169.254.169.254), shared (100.100.100.200) or unique local (fd00:ec2::254).
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
	{netip.MustParsePrefix("224.0.0.0/3"), "multicast or reserved"}, // includes the broadcast address
	{netip.MustParsePrefix("::/127"), "this host"},
	{netip.MustParsePrefix("2001::/23"), "a protocol's own network"}, // includes Teredo
	{netip.MustParsePrefix("2001:db8::/32"), "a network for documentation"},
	{netip.MustParsePrefix("2002::/16"), "a relay"}, // 6to4: carries any IPv4 address
	{netip.MustParsePrefix("3fff::/20"), "a network for documentation"},
	{netip.MustParsePrefix("fc00::/7"), "a private network"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local network"},
}

// global is the range from which IANA assigns the IPv6 addresses of public networks.
var global = netip.MustParsePrefix("2000::/3")

// private returns why an address cannot be a public server's, or "" if it can.
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
