package httpsink

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// connections make a sink's requests. The methods may be called in parallel.
type connections interface {
	// roundTrip makes a request and follows no redirect. An error before a connection
	// stands is one that unreachable knows.
	roundTrip(r *http.Request) (*http.Response, error)
	// check finds what stands in the way of a connection.
	check(ctx context.Context) error
	// proxied reports whether requests go through a proxy.
	proxied() bool
	close()
}

func newConnections(o *origin, timeout time.Duration) connections {
	if o.client != nil {
		return client{cmp.Or[http.RoundTripper](o.client.Transport, http.DefaultTransport)}
	}
	// An attempt that gets no connection in half of its time leaves with
	// "unavailable" before the whole time is over, which would be "transient".
	dial := newDialer(o, timeout/2)
	return &own{dial, newTransport(dial, o.proxy), dial.probe(o)}
}

// own are connections of the sink's own.
type own struct {
	dialer    *dialer
	transport *http.Transport
	probe     func(context.Context) error
}

func (c *own) roundTrip(r *http.Request) (*http.Response, error) { return c.transport.RoundTrip(r) }
func (c *own) check(ctx context.Context) error                   { return c.probe(ctx) }
func (c *own) proxied() bool                                     { return len(c.dialer.proxies) > 0 }

// close closes those in use too. The transport alone would also leave an HTTP/2 connection
// open whose last stream it has not tidied up yet.
func (c *own) close() {
	c.transport.CloseIdleConnections()
	c.dialer.close()
}

// client is the program's client, of which the transport counts. An http.Client would
// follow redirects, and put the URL into its errors.
type client struct{ transport http.RoundTripper }

// roundTrip asks net/http whether this request had a connection when it failed, else the
// client failed before, such as one that gets no token:
// the transport's errors do not all tell.
func (c client) roundTrip(r *http.Request) (*http.Response, error) {
	var waits atomic.Bool
	waits.Store(true)
	traced := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { waits.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { waits.Store(false) },
	})
	resp, err := c.transport.RoundTrip(r.WithContext(traced))
	if err != nil && waits.Load() {
		return nil, &connectError{err}
	}
	return resp, err
}

func (client) check(context.Context) error { return nil }
func (client) proxied() bool               { return false }
func (client) close()                      {}
