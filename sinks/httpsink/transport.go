package httpsink

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"
)

// connections make the requests of a client. The methods are safe for concurrent use.
type connections interface {
	// take returns the connection for one request to a URL. It does not connect yet.
	take(to *url.URL) roundTripper
	// check returns an error if no connection can be made.
	check(ctx context.Context) error
	// proxied reports whether requests go through a proxy.
	proxied() bool
	close()
}

// roundTripper is a connection for one request.
type roundTripper interface {
	// roundTrip makes the request without following redirects. For an error before the
	// connection was made, isUnreachable returns true.
	roundTrip(r *http.Request) (*http.Response, error)
	// pause returns how long to wait before the given repetition of a request that was not
	// processed.
	pause(repeat int) time.Duration
	// leave gives the connection back, after the answer has been read. With again, other
	// requests may use it.
	leave(again bool)
}

func newConnections(o *connectionSettings, timeout time.Duration) connections {
	if o.program != nil {
		return programClient{cmp.Or[http.RoundTripper](o.program.Transport, http.DefaultTransport)}
	}
	// If connecting takes half of the timeout, the error is unavailable. If it could take the
	// whole timeout, the error would be transient.
	dial := newDialer(o, timeout/2)
	return &ownConnections{newPool(dial, o.proxy), dial.probe(o)}
}

// ownConnections are connections that the client makes itself.
type ownConnections struct {
	*pool
	probe func(context.Context) error
}

func (c *ownConnections) check(ctx context.Context) error { return c.probe(ctx) }
func (c *ownConnections) proxied() bool                   { return len(c.dialer.proxies) > 0 }
func (c *ownConnections) close()                          { c.dialer.close() }

// programClient is the transport of the program's client. The client itself would follow
// redirects, and put the URL into its errors. It decides itself how long it uses a connection.
type programClient struct{ transport http.RoundTripper }

// maxCalls limits how often the program's transport may repeat a request that an HTTP/2 server did
// not process; each repetition is up to two calls.
const maxCalls = 40

var errLostAgain = errors.New("the connection was lost without an answer, twice")

// roundTrip traces whether the request had a connection when it failed. Without one, the error
// is a connectError. It may also be an error of the client's own code, for example if that gets
// no token. The errors of a transport do not always say so.
func (c programClient) roundTrip(r *http.Request) (*http.Response, error) {
	var (
		connecting, http2 atomic.Bool
		conn              atomic.Pointer[tls.Conn] // nil without TLS
	)
	connecting.Store(true)
	traced := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { connecting.Store(true) },
		GotConn: func(got httptrace.GotConnInfo) {
			connecting.Store(false)
			secure, ok := got.Conn.(*tls.Conn)
			conn.Store(secure)
			http2.Store(ok && secure.ConnectionState().NegotiatedProtocol == "h2")
		},
	})
	body, calls := r.GetBody, 0
	r.GetBody = func() (io.ReadCloser, error) { // see [use.bodyAgain]; the transport may have many connections
		if calls++; calls > 1 && !http2.Load() || calls > maxCalls {
			return nil, errLostAgain
		}
		return body()
	}
	resp, err := c.transport.RoundTrip(r.WithContext(traced))
	if err != nil && connecting.Load() {
		return nil, &connectError{err}
	}
	return resp, rejection(conn.Load(), err)
}

// rejection returns the TLS alert that ended a connection, if the error of a request is only that the connection could
// not be written: with TLS 1.3, a server rejects a client after the handshake, maybe while the request is written.
func rejection(secure *tls.Conn, err error) error {
	var network *net.OpError
	notWritten := errors.Is(err, net.ErrClosed) || errors.As(err, &network) && network.Op == "write"
	if secure == nil || !notWritten {
		return err
	}
	_ = secure.SetReadDeadline(time.Unix(1, 0)) // the alert, if there was one, is known without reading
	if _, alert := secure.Read(make([]byte, 1)); isUnreachable(alert) {
		return alert
	}
	return err
}

func (c programClient) take(*url.URL) roundTripper { return c }
func (programClient) pause(int) time.Duration      { return 0 }
func (programClient) leave(bool)                   {}
func (programClient) check(context.Context) error  { return nil }
func (programClient) proxied() bool                { return false }
func (programClient) close()                       {}
