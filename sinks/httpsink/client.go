package httpsink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// maxExchangeBody is how many bytes of an answer's body an [Exchange] has at most.
const maxExchangeBody = 8 << 10

// Client makes signed requests to URLs that are given for each, such as those of customers. It has
// the connections, the guard, the signatures and the classes of errors of a [Sink], which stands on
// one. All methods are safe for concurrent use.
type Client struct {
	rules       urlRules
	connections connections
	timeout     time.Duration
	bodyTime    time.Duration
	template    *http.Request
	// many reports that requests go to many URLs, so an answer says nothing about the others, and
	// open that hosts come from data.
	many, open bool
	now        func() time.Time
}

// NewClient makes a client from c with defaults for zero fields. It does not connect. Its error
// joins all mistakes of c. The guard is on unless c turns it off.
//
// in.HTTPClient and in.Dial are used as [New] does. The guard covers only own connections, so
// in.HTTPClient must refuse private networks itself; [Client.CheckURL] still refuses the URLs that the
// guard of c would refuse.
func NewClient(in sinks.Instance, c ClientConfig) (*Client, error) {
	c.SetDefaults()
	settings, err := c.resolve(in, peers{open: true})
	if err != nil {
		return nil, err
	}
	client := newClient(&settings, c.Timeout, http.MethodPost)
	client.many, client.open = true, true
	if client.rules, err = c.urlRules(); err != nil {
		return nil, err
	}
	return client, nil
}

func newClient(o *connectionSettings, timeout time.Duration, method string) *Client {
	return &Client{
		connections: newConnections(o, timeout),
		timeout:     timeout,
		bodyTime:    bodyTime,
		template:    &http.Request{Method: method, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1},
		now:         time.Now,
	}
}

// Close closes the client's own connections at once, including those of a running call. Later calls
// are unavailable.
func (c *Client) Close() { c.connections.close() }

// CheckURL reports why a URL cannot be that of an endpoint, and what to do: its scheme is not https
// (or http with AllowHTTP), it has a user, a password or a fragment, or no host, or its host is an
// IP address or a name of this host that the guard refuses. It does not look up names: the guard
// checks the address of each connection. The error quotes only the scheme, host and port.
func (c *Client) CheckURL(raw string) error {
	_, err := c.rules.parse(raw)
	return err
}

// Post is a request to an endpoint.
type Post struct {
	URL string
	// Header has headers beside those of the client. The rules are those of [CheckHeaders].
	Header map[string]string
	// ID is the webhook-id, in which "." and what headers cannot have are percent-encoded, and the
	// Idempotency-Key. It should be the same on every attempt, so that a receiver recognizes a
	// request that comes twice.
	ID string
	// Body is JSON. It must not change, even after the request.
	Body []byte
	// Keys sign the request; at least one.
	Keys Keys
	// At is the webhook-timestamp; zero means now. Receivers refuse requests that are older than
	// five minutes.
	At time.Time
}

// Exchange is a request and its answer, for the endpoint's owner: unlike errors it repeats everything
// that either of them has, also secrets. What it refers to must not be changed.
type Exchange struct {
	// RequestHeader is what was sent, or would have been; nil if the request was invalid.
	RequestHeader http.Header
	// Status is that of the answer; 0 means that there was none.
	Status int
	Header http.Header
	// Body is the beginning of the answer's body, at most 8 KiB. It may be shorter if the body is
	// slow.
	Body []byte
	// Duration is the time until the status was known, or until the request failed.
	Duration time.Duration
}

// Post sends one request and waits for the status of its answer. Any 2xx is a success, even if
// reading the body fails, which takes 0.3 s at most. The class of the error is that of a [Sink] whose
// URL comes from data:
//
//	transient      the answer 3xx, 401, 403, 404, 410, 5xx and others of which a retry may get
//	               another; no answer within the timeout, or a connection that was lost
//	throttled      the answer 429, 503 and others with Retry-After, for at most an hour
//	unavailable    no connection: name, TCP, TLS, proxy
//	permanent      other answers 4xx
//	invalid        a URL or a header that is refused, no key, or an address that the guard refuses:
//	               nothing was sent
//
// Errors about an answer are a [*ResponseError]. Errors do not repeat the secrets, the headers, and
// the URL's path and query. After the end of ctx, Post returns the error of ctx.
func (c *Client) Post(ctx context.Context, p Post) (Exchange, notification.Receipt, error) {
	r, err := c.requestOf(p)
	if err != nil {
		return Exchange{}, "", sinks.Invalid(err)
	}
	return c.send(ctx, time.Now().Add(c.timeout), r)
}

func (c *Client) requestOf(p Post) (request, error) {
	u, err := c.rules.parse(p.URL)
	if err != nil {
		return request{}, fmt.Errorf("url: %w", err)
	}
	headers, err := parseHeaders(p.Header, FormatEnvelope)
	switch {
	case err != nil:
		return request{}, err
	case len(p.Keys.keys) == 0:
		return request{}, errors.New("there is no secret to sign the request with")
	case p.ID == "":
		return request{}, errors.New("the id is empty")
	}
	at := p.At
	if at.IsZero() {
		at = c.now()
	}
	w := newHeader(headers, p.Keys.keys, 0)
	w.set(headerContentType, defaultContentType)
	w.finish(p.Keys.keys, encodeValue(p.ID), at, p.Body)
	return request{
		to:          newEndpoint(c.template.Method, u),
		header:      w.header,
		body:        p.Body,
		excerpt:     func() excerpt { return excerpt{sinks.MaxAnswer, p.Keys.with(p.Header)} },
		wholeAnswer: true,
	}, nil
}

// request is one request, before a connection is made for it.
type request struct {
	to     endpoint
	header http.Header
	body   []byte // may be read until the transport has ended, even after the request
	// excerpt prepares texts of the answer for errors and receipts.
	excerpt func() excerpt
	// wholeAnswer reports that the body of each answer is wanted, and not only that of an error.
	wholeAnswer bool
}

// send makes one request and reads its answer. deadline is the end of the timeout.
func (c *Client) send(ctx context.Context, deadline time.Time, r request) (x Exchange, receipt notification.Receipt, err error) {
	bounded, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	start := time.Now()
	connection, resp, err := c.ask(bounded, r)
	x = Exchange{RequestHeader: r.header, Duration: time.Since(start)}
	defer func() { connection.leave(canServeAgain(err)) }()
	if err != nil {
		return x, "", c.noResponse(ctx, bounded, r, err)
	}
	if resp.ContentLength != 0 {
		defer time.AfterFunc(c.bodyTime, cancel).Stop() // limits reading and drain
	}
	defer drain(resp)
	x.Status, x.Header = resp.StatusCode, resp.Header
	if good := resp.StatusCode/100 == 2; !good || r.wholeAnswer {
		x.Body = beginningOf(resp)
	}
	receipt, err = c.judge(r, x)
	return x, receipt, err
}

// canServeAgain reports whether the connection of a request with this result may serve others. An
// error about the destination may only be true of the server at the other end, as after a 421
// (RFC 9110, section 15.5.20), or of an address that the name had. So the next try gets another
// connection.
func canServeAgain(err error) bool {
	if err == nil {
		return true
	}
	class, _ := sinks.Classify(err)
	return class == sinks.ClassPermanent || class == sinks.ClassCancelled
}

// ask makes a request, on another connection as long as servers refuse to process it.
func (c *Client) ask(ctx context.Context, r request) (roundTripper, *http.Response, error) {
	for repeat := 1; ; repeat++ {
		connection := c.connections.take(r.to.url)
		resp, err := connection.roundTrip(c.attempt(ctx, r))
		if !errors.Is(err, errNotProcessed) {
			return connection, resp, err
		}
		select {
		case <-time.After(connection.pause(repeat)):
			connection.leave(false)
		case <-ctx.Done():
			return connection, nil, err
		}
	}
}

// attempt makes the request of one attempt from the template. With GetBody and the idempotency
// key, the transport repeats a request that was lost with a stale connection, or that the server
// has not processed: see [use.bodyAgain].
func (c *Client) attempt(ctx context.Context, r request) *http.Request {
	req := c.template.WithContext(ctx)
	req.URL, req.Host = r.to.url, r.to.url.Host
	req.Header = r.header
	body := r.body // so that GetBody keeps nothing else
	req.Body = newBody(body)
	req.GetBody = func() (io.ReadCloser, error) { return newBody(body), nil }
	req.ContentLength = int64(len(body))
	return req
}

// newBody returns a type that net/http recognizes, so that it writes headers and body together.
func newBody(body []byte) io.ReadCloser {
	if len(body) == 0 {
		return http.NoBody
	}
	return io.NopCloser(bytes.NewReader(body))
}
