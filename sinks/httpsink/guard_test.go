package httpsink

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestTheGuardAllowsOnlyPublicAddresses(t *testing.T) {
	for _, public := range []string{
		"1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "223.255.255.255",
		"2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::808:808",
	} {
		assert.NoError(t, new(guard).check(netip.MustParseAddr(public)), public)
	}
	for _, other := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "168.63.129.16",
		"169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.19.0.1",
		"198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::7f00:1", "::10.0.0.1", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1",
		"64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "5f00::1", "4000::1",
		"::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::a00:1",
	} {
		var refused *guardError
		assert.ErrorAs(t, new(guard).check(netip.MustParseAddr(other)), &refused, other)
	}
}

func TestTheGuardsExceptionsApplyToEveryFormOfAnAddress(t *testing.T) {
	g := &guard{allowed: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32")}}
	for address, allowed := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "64:ff9b::10.1.2.3": true, "fd00:1::1": true,
		"10.2.0.1": false, "fd00:2::1": false, "127.0.0.1": false,
	} {
		assert.Equal(t, allowed, g.check(netip.MustParseAddr(address)) == nil, address)
	}
}

func FuzzEveryFormOfAnAddressIsRefusedAlike(f *testing.F) {
	for _, seed := range []uint32{0x7f000001, 0x08080808, 0xa9fea9fe, 0x64400001, 0xffffffff, 0} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, n uint32) {
		four := netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
		want := new(guard).check(four) == nil
		require.Equal(t, want, new(guard).check(netip.AddrFrom16(four.As16())) == nil, "%s mapped", four)
		translated := nat64.Addr().As16()
		v4 := four.As4()
		copy(translated[12:], v4[:])
		require.Equal(t, want, new(guard).check(netip.AddrFrom16(translated)) == nil, "%s by NAT64", four)
		if std := net.IP(v4[:]); std.IsPrivate() || std.IsLoopback() || std.IsLinkLocalUnicast() || std.IsMulticast() || std.IsUnspecified() {
			require.False(t, want, "%s", four)
		}
	})
}

// localhost is a name. The guard judges the address to which it resolves.
func TestAHostFromDataMayNotBeInAPrivateNetwork(t *testing.T) {
	r := newReceiver(t)
	_, port, err := net.SplitHostPort(r.Listener.Addr().String())
	require.NoError(t, err)
	sink := newSink(t, Config{URL: "http://{{.Metadata.host}}:" + port + "/"})
	for _, host := range []string{"localhost", "127.0.0.1"} {
		_, err := sink.Deliver(t.Context(), hosted(host))
		assert.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%s: %v", host, err)
		assert.ErrorContains(t, err, "which the guard refuses; guard.allow makes exceptions")
	}
	assert.Zero(t, r.connections.Load(), "the sink opened no connection")
}

func TestTheModesOfTheGuard(t *testing.T) {
	r := newReceiver(t)
	_, port, err := net.SplitHostPort(r.Listener.Addr().String())
	require.NoError(t, err)
	byData := "http://{{.Metadata.host}}:" + port
	const passes = sinks.Class(-1)
	for name, tt := range map[string]struct {
		config Config
		want   sinks.Class
	}{
		"off for a host from data":             {Config{URL: byData, Guard: Guard{Mode: "off"}}, passes},
		"an exception":                         {Config{URL: byData, Guard: Guard{Allow: []string{"127.0.0.0/8"}}}, passes},
		"another exception":                    {Config{URL: byData, Guard: Guard{Allow: []string{"10.0.0.0/8"}}}, sinks.ClassInvalid},
		"a fixed URL":                          {Config{URL: r.URL}, passes},
		"a fixed host":                         {Config{URL: r.URL + "/{{.Type}}"}, passes},
		"on for a fixed URL":                   {Config{URL: r.URL, Guard: Guard{Mode: "on"}}, sinks.ClassUnavailable},
		"on for a fixed host":                  {Config{URL: r.URL + "/{{.Type}}", Guard: Guard{Mode: "on"}}, sinks.ClassUnavailable},
		"on for a fixed URL with an exception": {Config{URL: r.URL, Guard: Guard{Mode: "on", Allow: []string{"127.0.0.1/32"}}}, passes},
	} {
		_, err := newSink(t, tt.config).Deliver(t.Context(), hosted("127.0.0.1"))
		if tt.want == passes {
			assert.NoError(t, err, name)
			continue
		}
		assert.Equal(t, tt.want, sinktest.Class(err), "%s: %v", name, err)
		assert.ErrorContains(t, err, "127.0.0.1 is this host, which the guard refuses; guard.allow makes exceptions", name)
	}
}

// If hosts come from data, a host that is down or throttles affects only deliveries to it.
func TestEachHostFromDataIsADestination(t *testing.T) {
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(429)
	})
	off := Guard{Mode: "off"}
	_, gone, err := net.SplitHostPort(servertest.Unused)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		url   string
		class sinks.Class
	}{
		"asks to wait":   {strings.Replace(r.URL, "127.0.0.1", "{{.Metadata.host}}", 1), sinks.ClassThrottled},
		"refuses":        {"http://{{.Metadata.host}}:" + gone, sinks.ClassUnavailable},
		"not resolvable": {"http://{{.Metadata.host}}.invalid", sinks.ClassUnavailable},
	} {
		sink := newSink(t, Config{URL: c.url, Guard: off})
		require.NoError(t, sink.CheckHealth(t.Context()), "without a fixed host it checks nothing")
		_, err := sink.Deliver(t.Context(), hosted("127.0.0.1"))
		assert.Equal(t, c.class, sinktest.Class(err), "%s: %v", name, err)
		assert.Equal(t, strings.Replace(strings.TrimSuffix(c.url, "/"), "{{.Metadata.host}}", "127.0.0.1", 1), sink.Destination(hosted("127.0.0.1")))
		assert.ErrorContains(t, err, "127.0.0.1", fmt.Sprint(name, " names the host"))
	}

	fixed := newSink(t, Config{URL: "http://partner.example/{{.Metadata.host}}"})
	require.Empty(t, fixed.Destination(hosted("127.0.0.1")), "the host is fixed")
}
