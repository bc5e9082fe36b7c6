package httpsink

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// connections make a sink's requests. The methods are safe for concurrent use.
type connections interface {
	// roundTrip makes a request without following redirects. For an error before the
	// connection was made, isUnreachable returns true.
	roundTrip(r *http.Request) (*http.Response, error)
	// check returns an error if no connection can be made.
	check(ctx context.Context) error
	// proxied reports whether requests go through a proxy.
	proxied() bool
	close()
}

func newConnections(o *settings, timeout time.Duration) connections {
	if o.client != nil {
		return programClient{cmp.Or[http.RoundTripper](o.client.Transport, http.DefaultTransport)}
	}
	// If connecting takes half of the timeout, the error is unavailable. If it could take the
	// whole timeout, the error would be transient.
	dial := newDialer(o, timeout/2)
	return &ownConnections{dial, newTransport(dial, o.proxy), dial.probe(o)}
}

// ownConnections are connections that the sink makes itself.
type ownConnections struct {
	dialer    *dialer
	transport *http.Transport
	probe     func(context.Context) error
}

func (c *ownConnections) roundTrip(r *http.Request) (*http.Response, error) {
	return c.transport.RoundTrip(r)
}
func (c *ownConnections) check(ctx context.Context) error { return c.probe(ctx) }
func (c *ownConnections) proxied() bool                   { return len(c.dialer.proxies) > 0 }

// close also closes connections in use. The transport alone would also leave open an HTTP/2
// connection whose last stream it has not yet removed.
func (c *ownConnections) close() {
	c.transport.CloseIdleConnections()
	c.dialer.close()
}

// programClient is the transport of the program's client. The client itself would follow
// redirects, and put the URL into its errors.
type programClient struct{ transport http.RoundTripper }

// roundTrip traces whether the request had a connection when it failed. Without one, the error
// is a connectError. It may also be an error of the client's own code, for example if that gets
// no token. The errors of a transport do not always say so.
func (c programClient) roundTrip(r *http.Request) (*http.Response, error) {
	var connecting atomic.Bool
	connecting.Store(true)
	traced := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { connecting.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { connecting.Store(false) },
	})
	resp, err := c.transport.RoundTrip(r.WithContext(traced))
	if err != nil && connecting.Load() {
		return nil, &connectError{err}
	}
	return resp, err
}

func (programClient) check(context.Context) error { return nil }
func (programClient) proxied() bool               { return false }
func (programClient) close()                      {}
