package httpsink

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/waybill-go/waybill/sinks/internal/certificates"
)

const (
	// maxIdleConnections is the most requests that a client may have in flight. With fewer idle
	// connections, it would close and open connections all the time.
	maxIdleConnections = 1024

	idleTimeout = 90 * time.Second

	// pingAfter is when a silent HTTP/2 connection is pinged. Without it, a connection whose
	// other end is gone would fail one delivery after another.
	pingAfter = 15 * time.Second

	maxResponseHeaderBytes = 64 << 10
)

// newTransport returns the transport of a link. Errors before a connection was made are a
// *connectError.
func newTransport(d *dialer, l *link, proxy func(*http.Request) (*url.URL, error)) *http.Transport {
	return &http.Transport{
		Proxy: proxy,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return d.dial(ctx, l, network, address)
		},
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return d.dialTLS(ctx, l, network, address)
		},
		OnProxyConnectResponse: checkProxy,
		TLSClientConfig:        d.behindProxy.Clone(), // the transport changes it
		TLSHandshakeTimeout:    d.timeout,             // for servers behind a proxy
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter},
		MaxIdleConnsPerHost:    maxIdleConnections,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxResponseHeaderBytes,
		DisableCompression:     true, // only the beginning of a body is used
	}
}

// checkProxy returns an error if the proxy did not open a tunnel.
func checkProxy(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		return &connectError{fmt.Errorf("proxy %s answers CONNECT with %d %s",
			proxy.Host, resp.StatusCode, http.StatusText(resp.StatusCode))}
	}
	return nil
}

// dialer opens TCP and TLS connections, each within timeout, and can close all open ones, or those
// of one link.
type dialer struct {
	tcp          dialFunc
	tls          *tls.Config
	certificates *certificates.Certificates
	behindProxy  *tls.Config // for servers behind a proxy, with which the transport makes the handshake
	timeout      time.Duration
	proxies      map[string]bool // the addresses of proxies

	mu     sync.Mutex
	open   map[*connection]struct{}
	closed bool
}

func newDialer(o *connectionSettings, timeout time.Duration) *dialer {
	d := &dialer{
		tcp:          newTCP(o.dial, o.guard),
		tls:          o.tls,
		certificates: o.certificates,
		timeout:      timeout,
		proxies:      make(map[string]bool),
		open:         make(map[*connection]struct{}),
	}
	d.behindProxy = d.tls.Clone()
	if fixed := o.fixed; fixed != nil && d.behindProxy.ServerName == "" {
		d.behindProxy.ServerName = fixed.Hostname()
	}
	d.certificates.Apply(d.behindProxy)
	for _, proxy := range o.proxies {
		d.proxies[addressOf(proxy)] = true
	}
	return d
}

// dial opens a TCP connection of a link; nil: of none.
func (d *dialer) dial(ctx context.Context, of *link, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	conn, err := d.tcp(ctx, network, address)
	if err != nil {
		return nil, &connectError{err}
	}
	return d.track(conn, of)
}

// dialTLS returns a *tls.Conn after its handshake. From this type, the transport learns whether
// HTTP/2 was negotiated.
func (d *dialer) dialTLS(ctx context.Context, of *link, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	plain, err := d.dial(ctx, of, network, address)
	if err != nil {
		return nil, err
	}
	config := d.tls.Clone()
	if config.ServerName == "" || d.proxies[address] {
		config.ServerName, _, _ = net.SplitHostPort(address) // never fails: the address has been dialled
	}
	d.certificates.Apply(config)
	if d.proxies[address] {
		// The connection to a proxy uses HTTP/1.1, and has no client certificate.
		config.NextProtos, config.Certificates, config.GetClientCertificate = nil, nil, nil
	}
	conn := tls.Client(plain, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, &connectError{err}
	}
	return conn, nil
}

// track registers a connection, so that close closes it.
func (d *dialer) track(conn net.Conn, of *link) (net.Conn, error) {
	c := &connection{Conn: conn, dialer: d, link: of}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || of != nil && of.closed {
		_ = conn.Close()
		return nil, &connectError{net.ErrClosed}
	}
	d.open[c] = struct{}{}
	return c, nil
}

// close closes all connections, and those that are still being dialled as soon as they are
// open.
func (d *dialer) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for c := range d.open {
		_ = c.Conn.Close() // an error does not matter any more
	}
	clear(d.open)
}

// closeLink closes the connections of a link, and those that are still being dialled as soon as
// they are open.
func (d *dialer) closeLink(l *link) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.closed = true
	for c := range d.open {
		if c.link == l {
			_ = c.Conn.Close() // an error does not matter any more
			delete(d.open, c)
		}
	}
}

// connection is an open connection of a dialer.
type connection struct {
	net.Conn
	dialer *dialer
	link   *link // nil for a probe
}

func (c *connection) Close() error {
	c.dialer.mu.Lock()
	delete(c.dialer.open, c)
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}

// probe returns a function that opens and closes a connection to the fixed host, or to the
// proxy. If the host comes from data and there is no proxy, the function does nothing.
func (d *dialer) probe(o *connectionSettings) func(context.Context) error {
	peer := o.fixed
	if len(o.proxies) > 0 {
		peer = o.proxies[0]
	}
	if peer == nil {
		return func(context.Context) error { return nil }
	}
	dial := d.dial
	if peer.Scheme == "https" {
		dial = d.dialTLS
	}
	return func(ctx context.Context) error {
		conn, err := dial(ctx, nil, "tcp", addressOf(peer))
		if err != nil {
			return err
		}
		_ = conn.Close()
		return nil
	}
}

// addressOf returns the host and port to dial.
func addressOf(u *url.URL) string { return net.JoinHostPort(u.Hostname(), portOf(u)) }

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	case u.Scheme == "http":
		return "80"
	}
	return "1080" // SOCKS
}
