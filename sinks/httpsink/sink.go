// Package httpsink delivers notifications as HTTP requests: webhooks, in short.
//
// With secrets each request is signed as Standard Webhooks 1.0.0 says
// (https://www.standardwebhooks.com), so a receiver can verify it with any library of
// that standard, or with [Envelope]. Its body is an envelope with all of the
// notification, since no header is signed. Without secrets the body is the payload,
// byte for byte, and everything else travels in headers, see [HeaderID] and its
// neighbours. Other formats are CloudEvents 1.0 in binary, structured and batched mode,
// see [FormatBinary].
//
// Requests go to one URL, or to one that a template makes of the notification's
// type, key and metadata. Where data has a say in the host, a guard keeps requests
// out of private networks.
//
// What an answer means stands in docs/sinks-http.md, and in the Answers of [Kind]. When the
// engine's context ends, its error is returned as it is.
//
// Throttled and unavailable let the whole sink wait; where hosts come from data, that
// host only, see [Sink.Destination].
//
// A batch that is refused for good is sent again in halves, see [Sink.DeliverBatch].
//
// HTTP_PROXY, HTTPS_PROXY and NO_PROXY are heeded as they stand when the program
// asks for them first.
//
// A request may reach the receiver twice, also within one delivery: one that a
// kept-alive connection lost is sent once more, on another one. The id is the
// same both times.
package httpsink

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// Sink sends deliveries to one URL, or to one for each. It implements
// [sinks.Batcher], with batches in the format [FormatBatch] only, [sinks.Closer]
// and [sinks.HealthChecker]; all methods may be called in parallel.
type Sink struct {
	destination    destination
	format         string
	source         string // of events
	metadata       selection
	batch          sinks.BatchLimits
	maxBytes       int // of a batch's request
	timeout        time.Duration
	excerpt        excerpt
	receiptHeaders []string
	connections    connections
	template       *http.Request
	headers        http.Header
	signer         signer
	now            func() time.Time
}

var (
	_ sinks.Sink          = (*Sink)(nil)
	_ sinks.Batcher       = (*Sink)(nil)
	_ sinks.Closer        = (*Sink)(nil)
	_ sinks.HealthChecker = (*Sink)(nil)
	_ sinks.Addresser     = (*Sink)(nil)
)

// Kind is the sink kind http.
func Kind() sinks.Kind {
	return sinks.NewKind("http", "requests to a URL, signed as Standard Webhooks",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) }, answers...)
}

// New makes a sink from c, whose zero fields get their defaults. It connects to
// nothing. The error joins all mistakes of c.
//
// With in.HTTPClient its Transport makes the requests, and the program is to close it.
// What else a client has is not used: redirects are not followed, the timeout is that of c,
// and there are no cookies. It has to keep requests out of private networks itself where
// hosts come from data: c.Guard is for the sink's own connections. [Sink.CheckHealth] then
// finds nothing wrong.
//
// With in.Dial the sink's own connections are opened by it. Where the guard is on it gets
// addresses that the guard has let through, and no names.
func New(in sinks.Instance, c Config) (*Sink, error) {
	c.SetDefaults()
	o, err := c.resolve(in)
	if err != nil {
		return nil, err
	}
	s := &Sink{
		destination:    o.destination,
		format:         c.Format,
		source:         c.CloudEvents.Source,
		metadata:       o.metadata,
		timeout:        c.Timeout,
		excerpt:        newExcerpt(c.MaxResponseBytes, o.credentials),
		receiptHeaders: receiptHeaders,
		connections:    newConnections(o, c.Timeout),
		template:       &http.Request{Method: c.Method, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1},
		headers:        o.headers,
		signer:         o.signer,
		now:            time.Now,
	}
	if c.Format == FormatBatch {
		s.maxBytes = c.Batch.MaxBytes
		s.batch = sinks.BatchLimits{Size: c.Batch.Size, Wait: c.Batch.Wait, Ordered: true}
	}
	if c.ReceiptHeader != "" {
		s.receiptHeaders = []string{http.CanonicalHeaderKey(c.ReceiptHeader)}
	}
	return s, nil
}

// Deliver sends one request and waits for the status of its response. Any 2xx
// is a delivery, whatever becomes of the response's body, which is read for 0.3 s
// at most. See the Answers of [Kind] for what the errors mean; those about a response
// are a [*ResponseError].
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	to, err := s.destination.of(d)
	if err != nil {
		return "", sinks.Permanent(err)
	}
	return s.send(ctx, time.Now().Add(s.timeout), to, s.message(d, to))
}

// Destination is scheme, host and port where they come from data; "" where they are
// fixed, or no URL can be made.
func (s *Sink) Destination(d *notification.Delivery) string {
	if !s.destination.open {
		return ""
	}
	to, err := s.destination.of(d)
	if err != nil {
		return ""
	}
	return originOf(to.url)
}

// Close closes the sink's own connections, at once, those of a call that is still under
// way too. Later calls are unavailable.
func (s *Sink) Close(context.Context) error {
	s.connections.close()
	return nil
}

// CheckHealth connects to the host (TCP, and TLS for https) or to the proxy
// that requests go through, and sends nothing. What stands in the way is
// unavailable. Where hosts come from data it finds nothing wrong.
func (s *Sink) CheckHealth(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.connections.check(bounded); err != nil {
		return s.unanswered(ctx, bounded, s.destination.fixed.target, err)
	}
	return nil
}

// message is what one request says.
type message struct {
	header http.Header
	body   []byte // the message's own
}

// message makes the message of one attempt. The payload is copied, since the
// transport may still read the body of an attempt that was cancelled after
// Deliver returned.
func (s *Sink) message(d *notification.Delivery, to place) message {
	id := encodeValue(d.ID)
	switch s.format {
	case FormatBinary:
		return s.finish(s.eventHeader(d), to, id, bytes.Clone(d.Payload))
	case FormatEnvelope:
		return s.finish(s.besideHeader(d, defaultContentType), to, id, s.appendEnvelope(nil, d))
	case FormatStructured:
		return s.finish(s.besideHeader(d, contentTypeEvent), to, id, s.appendEvent(nil, d))
	case FormatBatch:
		m, _ := s.batchMessage([]*notification.Delivery{d})
		return m
	}
	return s.finish(s.header(d), to, id, bytes.Clone(d.Payload))
}

// batchMessage makes the message of as many of the batch as one request takes, which
// are the first n.
func (s *Sink) batchMessage(batch []*notification.Delivery) (m message, n int) {
	body, n := s.appendBatch(nil, batch)
	return s.finish(s.batchHeader(), s.destination.fixed, batchID(batch[:n]), body), n
}

// send makes one request and reads its response. The deadline is where the sink's
// timeout ends.
func (s *Sink) send(ctx context.Context, deadline time.Time, to place, m message) (notification.Receipt, error) {
	bounded, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	resp, err := s.connections.roundTrip(s.request(bounded, to, m))
	if err != nil {
		return "", s.unanswered(ctx, bounded, to.target, err)
	}
	if resp.ContentLength != 0 {
		defer time.AfterFunc(bodyTime, cancel).Stop() // which ends what drain does
	}
	defer drain(resp)
	if resp.StatusCode/100 == 2 {
		return s.receipt(resp), nil
	}
	return "", s.refused(to, resp)
}

// request makes the request of one attempt from the template. GetBody, with the
// idempotency key, lets the transport repeat a request that a stale connection
// lost: once, since a receiver that ends because of this notification loses the
// connection each time, and the transport has many.
func (s *Sink) request(ctx context.Context, to place, m message) *http.Request {
	req := s.template.WithContext(ctx)
	req.URL, req.Host = to.url, to.url.Host
	req.Header = m.header
	req.Body = newBody(m.body)
	repeated := false
	req.GetBody = func() (io.ReadCloser, error) {
		if repeated {
			return nil, errLostAgain
		}
		repeated = true
		return newBody(m.body), nil
	}
	req.ContentLength = int64(len(m.body))
	return req
}

var errLostAgain = errors.New("the connection was lost without an answer, twice")

// newBody returns types that net/http knows, so that it writes headers and
// body in one go.
func newBody(body []byte) io.ReadCloser {
	if len(body) == 0 {
		return http.NoBody
	}
	return io.NopCloser(bytes.NewReader(body))
}
