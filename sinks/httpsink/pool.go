package httpsink

import (
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxConnectionAge is how long a connection gets new requests; then the next one resolves the name
// again, because a server's address may move.
const maxConnectionAge = 5 * time.Minute

// pool keeps the connections of a client. Each is a link. A link that refuses, fails or is old gets no
// more requests, while the others are not disturbed.
type pool struct {
	dialer *dialer
	proxy  func(*http.Request) (*url.URL, error)
	maxAge time.Duration

	mu    sync.Mutex
	hosts map[string]*host // by origin
	idle  int              // number of links without a request
}

// host has the links to one origin.
type host struct {
	origin string
	links  int     // number of all
	free   []*link // those that can take a request; the one used last is at the end
	http2  bool    // the latest answer came by HTTP/2, so one link can serve all requests
}

// link is a transport for one connection at a time. With HTTP/2 it serves many requests at once, by
// more connections if the server limits the streams of each.
type link struct {
	pool      *pool
	host      *host
	transport *http.Transport
	until     time.Time     // when it is too old for another request
	ready     chan struct{} // closed when the first request has a connection, or has failed
	failed    error         // why the first request got no connection
	served    atomic.Bool   // whether it has had an answer

	requests  int       // in flight
	idleSince time.Time // if there are none
	shared    bool      // HTTP/2: free while there are requests
	retired   bool      // not free any more
	closed    bool      // guarded by the dialer
}

// use is one request on a link.
type use struct {
	*link
	first  bool
	shared bool // as it was when the request began
	major  int  // version of HTTP of the answer; 0: none
}

var _ roundTripper = (*use)(nil)

func newPool(d *dialer, proxy func(*http.Request) (*url.URL, error)) *pool {
	return &pool{dialer: d, proxy: proxy, maxAge: maxConnectionAge, hosts: make(map[string]*host)}
}

func (p *pool) take(to *url.URL) roundTripper {
	now := time.Now()
	var old []*link
	defer func() { p.closeAll(old) }()
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hostOf(originOf(to))
	for n := len(h.free); n > 0; n = len(h.free) {
		l := h.free[n-1]
		if now.After(l.until) {
			old = append(old, p.retire(l)...)
			continue
		}
		if !l.shared {
			h.free = h.free[:n-1]
		}
		if l.requests++; l.requests == 1 {
			p.idle--
		}
		return &use{link: l, shared: l.shared}
	}
	return &use{link: p.add(h, now), first: true, shared: h.http2}
}

func (p *pool) hostOf(origin string) *host {
	h := p.hosts[origin]
	if h == nil {
		h = &host{origin: origin}
	}
	return h
}

// add makes a link for its first request. The ages of links differ, so that those that were made
// together are not all replaced together.
func (p *pool) add(h *host, now time.Time) *link {
	l := &link{
		pool: p, host: h, requests: 1, shared: h.http2, ready: make(chan struct{}),
		until: now.Add(p.maxAge - time.Duration(rand.Float64()*float64(p.maxAge)/5)),
	}
	l.transport = newTransport(p.dialer, l, p.proxy)
	h.links++
	p.hosts[h.origin] = h
	if l.shared {
		h.free = append(h.free, l)
	}
	return l
}

// roundTrip makes the request. Only the first one of a link connects; others wait for it, so that
// one connection to an HTTP/2 server is made for all.
func (u *use) roundTrip(r *http.Request) (resp *http.Response, err error) {
	r.GetBody = u.bodyAgain(r.GetBody)
	if u.first {
		var once sync.Once
		connected := func(err error) {
			once.Do(func() { u.failed = err; close(u.ready) })
		}
		var secure *tls.Conn // nil without TLS
		traced := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			GotConn: func(got httptrace.GotConnInfo) {
				secure, _ = got.Conn.(*tls.Conn)
				connected(nil)
			},
		})
		resp, err = u.transport.RoundTrip(r.WithContext(traced))
		err = rejection(secure, err)
		if !isUnreachable(err) {
			connected(nil) // such as a cancelled request: the others connect themselves
		}
		connected(err)
	} else {
		select {
		case <-u.ready:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		if u.failed != nil {
			return nil, u.failed
		}
		resp, err = u.transport.RoundTrip(r)
	}
	if err == nil {
		u.major = resp.ProtoMajor
		u.served.Store(true)
	}
	return resp, err
}

// errNotProcessed means that the server has certainly not processed the request: it refused the
// HTTP/2 stream, or went away before it (RFC 9113, section 8.7).
var errNotProcessed = errors.New("the server did not process the request")

// bodyAgain limits how often the transport repeats a request. One that was lost with a kept-alive
// HTTP/1.1 connection is repeated once, on a new one, since the link has no other: if the notification
// crashes the receiver, no more connections are lost. The transport repeats a request on HTTP/2
// only if the server has not processed it. Then the client does it itself, on another link, since the
// transport would pause.
func (u *use) bodyAgain(body func() (io.ReadCloser, error)) func() (io.ReadCloser, error) {
	calls := 0
	return func() (io.ReadCloser, error) {
		if calls++; u.shared || calls > 2 {
			return nil, errNotProcessed
		}
		return body()
	}
}

// pause grows with each repetition on links that never answered, and later with any.
func (u *use) pause(repeat int) time.Duration {
	if u.served.Load() {
		repeat -= 10 // many requests may compete for the few that a connection can take
	}
	if repeat <= 0 {
		return 0
	}
	return 5 * time.Millisecond << min(repeat, 7)
}

// leave ends the request. A link without HTTP/2 whose request got no answer is not used again: its
// connection is lost, or still being made.
func (u *use) leave(again bool) {
	p, l, h := u.pool, u.link, u.host
	var old []*link
	defer func() { p.closeAll(old) }()
	p.mu.Lock()
	defer p.mu.Unlock()
	if u.major != 0 {
		h.http2 = u.major == 2
	}
	if l.requests--; l.requests == 0 {
		p.idle++
		l.idleSince = time.Now()
	}
	switch {
	case l.retired:
		old = p.end(l)
	case !again, l.shared && u.major == 1, !l.shared && (u.major == 0 || h.http2 && len(h.free) > 0):
		old = p.retire(l)
	case !l.shared:
		l.shared = h.http2
		h.free = append(h.free, l)
	}
	old = append(old, p.trim(h)...)
}

// retire lets a link take no more requests. It returns the link if it can be closed.
func (p *pool) retire(l *link) []*link {
	l.retired = true
	if i := slices.Index(l.host.free, l); i >= 0 {
		l.host.free = slices.Delete(l.host.free, i, i+1)
	}
	return p.end(l)
}

// end forgets a retired link without requests, and returns it.
func (p *pool) end(l *link) []*link {
	if l.requests > 0 {
		return nil
	}
	p.idle--
	if l.host.links--; l.host.links == 0 {
		delete(p.hosts, l.host.origin)
	}
	return []*link{l}
}

// trim retires the link of a host that is idle for too long, or any one if too many are idle.
func (p *pool) trim(h *host) []*link {
	if len(h.free) > 0 && h.free[0].requests == 0 && time.Since(h.free[0].idleSince) > idleTimeout {
		return p.retire(h.free[0])
	}
	if p.idle <= maxIdleConnections {
		return nil
	}
	for _, other := range p.hosts {
		if len(other.free) > 0 && other.free[0].requests == 0 {
			return p.retire(other.free[0])
		}
	}
	return nil
}

// closeAll closes links without requests.
func (p *pool) closeAll(links []*link) {
	for _, l := range links {
		p.dialer.closeLink(l)
		l.transport.CloseIdleConnections() // so that it keeps none that is still being made
	}
}
