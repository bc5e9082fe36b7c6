// Package httpsink delivers notifications as HTTP requests to one fixed URL:
// webhooks, in short.
//
// The body is the payload, byte for byte; everything else travels in headers,
// see [HeaderID] and its neighbours. With a secret each request is signed as
// Standard Webhooks 1.0.0 says (https://www.standardwebhooks.com), so a receiver
// can verify it with any library of that standard.
//
// What an answer means:
//
//	2xx                                        delivered, the receipt is "http 202"
//	408, 425, 429, 502, 503, 504               throttled until Retry-After if that lies ahead (1 h at most), else transient
//	other 5xx                                  transient
//	3xx                                        permanent: redirects are not followed, the error says where to
//	410 and other 4xx                          permanent
//	no connection: DNS, TCP, TLS, proxy        unavailable
//	no response in time, connection lost       transient
//	the engine's context ended                 context.Canceled or context.DeadlineExceeded, as it is
//
// HTTP_PROXY, HTTPS_PROXY and NO_PROXY are heeded as they stand when the sink is
// built.
//
// A request may reach the receiver twice, also within one delivery: one that a
// kept-alive connection lost is sent again on a fresh connection. The id is the
// same both times.
package httpsink

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// Kind is what stands behind "kind:" in the configuration.
const Kind = "http"

// Sink posts deliveries to one URL. It implements [sinks.Sink], [sinks.Closer]
// and [sinks.HealthChecker]; all methods may be called in parallel.
type Sink struct {
	origin    *origin
	timeout   time.Duration
	excerpt   excerpt
	dialer    *dialer
	transport *http.Transport
	health    func(context.Context) error
	template  *http.Request
	headers   http.Header
	signer    *signer // nil where nothing is signed
	now       func() time.Time
}

var (
	_ sinks.Sink          = (*Sink)(nil)
	_ sinks.Closer        = (*Sink)(nil)
	_ sinks.HealthChecker = (*Sink)(nil)
)

// Register adds the kind "http" to set. [sinks.ErrDuplicateKind] if the name is
// taken.
func Register(set *sinks.Set) error {
	return sinks.Register(set, Kind, "requests to a URL, signed as Standard Webhooks",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) })
}

// New makes a sink from c, whose zero fields get their defaults. It connects to
// nothing. The error joins all mistakes of c.
func New(_ sinks.Instance, c Config) (*Sink, error) {
	c.SetDefaults()
	o, err := c.resolve()
	if err != nil {
		return nil, err
	}
	template := &http.Request{
		Method:     c.Method,
		URL:        o.url,
		Host:       o.url.Host,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
	}
	proxy, err := http.ProxyFromEnvironment(template)
	if err != nil {
		return nil, fmt.Errorf("proxy from the environment: %w", err)
	}
	// An attempt that gets no connection in half of its time leaves with
	// "unavailable" before the whole time is over, which would be "transient".
	dial := newDialer(o.roots, c.Timeout/2)
	s := &Sink{
		origin:    o,
		timeout:   c.Timeout,
		excerpt:   newExcerpt(c.MaxResponseBytes, o.credentials),
		dialer:    dial,
		transport: newTransport(dial, proxy),
		health:    dial.probe(o.url, proxy),
		template:  template,
		headers:   o.headers,
		now:       time.Now,
	}
	if o.key != nil {
		s.signer = newSigner(o.key)
	}
	return s, nil
}

// Deliver sends one request and waits for the status of its response. Any 2xx
// is a delivery, whatever becomes of the response's body. See the package
// comment for what the errors mean; those about a response are a
// [*ResponseError].
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	resp, err := s.transport.RoundTrip(s.request(bounded, d))
	if err != nil {
		return "", s.unanswered(ctx, bounded, err)
	}
	defer drain(resp)
	if resp.StatusCode/100 == 2 {
		return notification.Receipt("http " + strconv.Itoa(resp.StatusCode)), nil
	}
	return "", s.refused(resp)
}

// Close closes all connections, at once. Deliver must not be called after it.
//
// The transport alone would leave an HTTP/2 connection open whose last stream
// it has not tidied up yet.
func (s *Sink) Close(context.Context) error {
	s.transport.CloseIdleConnections()
	s.dialer.close()
	return nil
}

// CheckHealth connects to the host (TCP, and TLS for https) or to the proxy
// that the environment sets for it, and sends nothing. What stands in the way
// is unavailable.
func (s *Sink) CheckHealth(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.health(bounded); err != nil {
		return s.unanswered(ctx, bounded, err)
	}
	return nil
}

// request makes the request of one attempt from the template: nothing that is
// the same for all deliveries is computed again.
//
// The payload is copied, since the transport may still read the body of an
// attempt that was cancelled after Deliver returned. GetBody, with the
// idempotency key, lets it repeat a request that a stale connection lost.
func (s *Sink) request(ctx context.Context, d *notification.Delivery) *http.Request {
	payload := bytes.Clone(d.Payload)
	req := s.template.WithContext(ctx)
	req.Header = s.header(d, payload)
	req.Body = newBody(payload)
	req.GetBody = func() (io.ReadCloser, error) { return newBody(payload), nil }
	req.ContentLength = int64(len(payload))
	return req
}

// newBody returns types that net/http knows, so that it writes headers and
// body in one go.
func newBody(payload []byte) io.ReadCloser {
	if len(payload) == 0 {
		return http.NoBody
	}
	return io.NopCloser(bytes.NewReader(payload))
}
