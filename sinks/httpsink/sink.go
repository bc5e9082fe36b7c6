// Package httpsink delivers notifications as HTTP requests, such as webhooks. [New] makes
// the sink, for a forwarder or for Outbox.Deliver of package waybill; in waybill.yaml it is
// of kind http. A receiver in Go reads the requests with package webhook.
//
// With secrets each request is signed as Standard Webhooks 1.0.0 says
// (https://www.standardwebhooks.com), so a receiver can verify it with any library of
// that standard, or with package webhook. Its body is an envelope with the whole
// notification, because signatures do not cover headers. Without secrets the body is the
// unchanged payload, and everything else is in headers: see [webhook.HeaderID]. Other formats are
// CloudEvents 1.0 in binary, structured and batched mode: see [FormatBinary].
//
// Requests go to one URL, or to a URL that a template makes from the notification's
// type, key and metadata. If the host comes from data, a guard refuses connections to
// private networks.
//
// docs/sinks-http.md and the Answers of [Kind] explain what each answer means.
//
// If the sink is throttled or unavailable, all its deliveries wait. If hosts come from
// data, only deliveries to that host wait: see [Sink.Destination].
//
// A batch that is refused permanently is sent again in halves: see [Sink.DeliverBatch].
//
// HTTP_PROXY, HTTPS_PROXY and NO_PROXY apply, with the values that they have when the
// program first uses them.
//
// A request may reach the receiver twice, even within one delivery: if a kept-alive
// connection loses it, it is sent once more on another connection, with the same id.
package httpsink

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink/internal/signature"
)

// Sink sends deliveries to one URL, or to a URL for each. It makes batches only in the format
// [FormatBatch]. All methods are safe for concurrent use.
type Sink struct {
	client      *Client
	destination destination
	format      string
	source      string // of CloudEvents
	metadata    selection
	batch       sinks.BatchLimits
	maxBytes    int // of a request with a batch
	headers     http.Header
	keys        []signature.Key
	excerpt     func() excerpt
}

var (
	_ sinks.Sink          = (*Sink)(nil)
	_ sinks.Batcher       = (*Sink)(nil)
	_ sinks.Collector     = (*Sink)(nil)
	_ sinks.Closer        = (*Sink)(nil)
	_ sinks.HealthChecker = (*Sink)(nil)
	_ sinks.Addresser     = (*Sink)(nil)
)

// Kind is the sink kind http.
func Kind() sinks.Kind {
	return sinks.NewKind("http", "requests to a URL, signed as Standard Webhooks",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) }, answers...)
}

// New makes a sink from c with defaults for zero fields. It does not connect. Its error
// joins all mistakes of c.
//
// If in.HTTPClient is set, its Transport makes the requests, and the program closes it. The
// client's other settings are not used: redirects are not followed, the timeout is that of c,
// and there are no cookies. c.Guard covers only the sink's own connections, so if hosts come
// from data, the client must refuse private networks itself. [Sink.CheckHealth] then checks
// nothing.
//
// If in.Dial is set, it opens the sink's own connections. If the guard is on, it gets
// addresses that the guard has allowed, and no host names.
func New(in sinks.Instance, c Config) (*Sink, error) {
	c.SetDefaults()
	o, err := c.resolve(in)
	if err != nil {
		return nil, err
	}
	excerpted := newExcerpt(sinks.MaxAnswer, o.credentials)
	s := &Sink{
		client:      newClient(&o.connections, c.Timeout, c.Method),
		destination: o.destination,
		format:      c.Format,
		source:      c.Source,
		metadata:    o.metadata,
		headers:     o.headers,
		keys:        o.keys,
		excerpt:     func() excerpt { return excerpted },
	}
	s.client.many, s.client.open = o.destination.template != nil, o.destination.open
	if c.Format == FormatBatch {
		s.maxBytes = c.Batch.MaxBytes
		s.batch = sinks.BatchLimits{Size: c.Batch.Size, Wait: c.Batch.Wait, Ordered: true}
	}
	return s, nil
}

// Deliver sends one request and waits for the status of its response. Any 2xx counts as
// delivered, even if reading the body fails, which takes 0.3 s at most. The Answers of
// [Kind] explain the errors; errors about a response are a [*ResponseError]. After the end of
// ctx it returns the error of ctx.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	to, err := s.destination.of(d)
	if err != nil {
		return "", sinks.Invalid(err)
	}
	_, receipt, err := s.client.send(ctx, time.Now().Add(s.client.timeout), s.request(d, to))
	return receipt, err
}

// Destination returns scheme, host and port if they come from data; "" if they are fixed,
// or if the template fails.
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

// Close closes the sink's own connections at once, including those of a running call. Later
// calls are unavailable.
func (s *Sink) Close(context.Context) error {
	s.client.Close()
	return nil
}

// CheckHealth connects to the host (TCP, and TLS for https), or to the proxy, and sends
// nothing. If it cannot connect, it returns an unavailable error. If hosts come from data, it
// checks nothing.
func (s *Sink) CheckHealth(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, s.client.timeout)
	defer cancel()
	if err := s.client.connections.check(bounded); err != nil {
		return s.client.noResponse(ctx, bounded, request{to: s.destination.fixed, excerpt: s.excerpt}, err)
	}
	return nil
}

// request makes the request of one attempt. It copies the payload, because the transport may
// still read the body of a cancelled attempt after Deliver has returned.
func (s *Sink) request(d *notification.Delivery, to endpoint) request {
	id := encodeValue(d.ID)
	switch s.format {
	case FormatBinary:
		return s.finish(s.eventHeader(d), to, id, bytes.Clone(d.Payload))
	case FormatEnvelope:
		return s.finish(s.bodyHeader(d, defaultContentType), to, id, s.appendEnvelope(nil, d))
	case FormatStructured:
		return s.finish(s.bodyHeader(d, contentTypeEvent), to, id, s.appendEvent(nil, d))
	case FormatBatch:
		r, _ := s.batchRequest([]*notification.Delivery{d})
		return r
	}
	return s.finish(s.header(d), to, id, bytes.Clone(d.Payload))
}

// batchRequest makes the request of the first n deliveries of the batch, as many as one request
// can have.
func (s *Sink) batchRequest(batch []*notification.Delivery) (r request, n int) {
	body, n := s.appendBatch(nil, batch)
	return s.finish(s.contentHeader(contentTypeEventBatch), s.destination.fixed, batchID(batch[:n]), body), n
}

// finish makes a request of headers and body.
func (s *Sink) finish(w headerWriter, to endpoint, id string, body []byte) request {
	w.finish(s.keys, id, s.client.now(), body)
	return request{to: to, header: w.header, body: body, excerpt: s.excerpt}
}
