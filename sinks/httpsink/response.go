package httpsink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/redact"
	"github.com/waybill-go/waybill/sinks/internal/retryafter"
)

const (
	// drainLimit is how many bytes of a response's body are read, so that its connection can
	// be used again. For a longer body, a new connection costs less.
	drainLimit = 256 << 10

	// bodyTime limits the time for reading a response's body. The status is already known,
	// so a delivery does not wait for longer.
	bodyTime = 300 * time.Millisecond
)

// receiptHeaders are customary headers for the id that a destination gives to a request.
var receiptHeaders = []string{"X-Request-Id", "Request-Id", "X-Message-Id"}

// maxReceiptID is the maximum length in bytes of the id in a receipt.
const maxReceiptID = 128

// beginningOf reads the beginning of a response's body, up to an error.
func beginningOf(resp *http.Response) []byte {
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		_ = resp.Body.Close() // this body is the connection itself, and does not end
		resp.Body = http.NoBody
		return nil
	case resp.Body == http.NoBody:
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxExchangeBody))
	return body
}

// judge returns what an answer means. Any 2xx is a success.
func (c *Client) judge(r request, x Exchange) (notification.Receipt, error) {
	if x.Status/100 == 2 {
		return receiptOf(r, x), nil
	}
	return "", c.responseError(r, x)
}

// receiptOf returns the status, and the id that the destination gave to the request, if any.
func receiptOf(r request, x Exchange) notification.Receipt {
	receipt := "http " + strconv.Itoa(x.Status)
	for _, name := range receiptHeaders {
		if values := x.Header[name]; len(values) > 0 && values[0] != "" {
			id := r.excerpt().clean(values[0])
			return notification.Receipt(strings.TrimRight(receipt+" "+strings.ToValidUTF8(id[:min(len(id), maxReceiptID)], ""), " "))
		}
	}
	return notification.Receipt(receipt)
}

// responseError returns the error of a response that is not 2xx.
//
// A response that refuses the sink as a whole is unavailable, because the delivery is not the
// cause. If the URL comes from data, the response is only about that URL, so the delivery is
// retried. A response that says when to come back, such as a 429 with Retry-After, is throttled.
func (c *Client) responseError(r request, x Exchange) error {
	excerpt := r.excerpt().without(r.to.url)
	e := &ResponseError{
		Target: r.to.target,
		Status: x.Status,
		Body:   excerpt.clean(string(x.Body)),
	}
	if e.Status/100 == 3 {
		e.Location = excerpt.clean(x.Header.Get("Location"))
	}
	err := sinks.WithAnswer(e, strings.TrimSpace(e.Location+" "+e.Body))
	until, throttled := retryafter.Parse(x.Header.Get("Retry-After"), c.now())
	switch {
	case e.Status == http.StatusProxyAuthRequired && c.connections.proxied():
		return sinks.Unavailable(err) // the proxy would refuse every delivery
	case refusesSink(e.Status) && !c.many:
		return sinks.Unavailable(err)
	case usesRetryAfter(e.Status) && throttled:
		return sinks.Throttled(until, err)
	case refusesSink(e.Status), isTemporary(e.Status):
		return sinks.Transient(err)
	}
	return sinks.Permanent(err)
}

// refusesSink reports whether a status is about the address, the credentials or the
// configuration, and not about the notification. Redirects are, because they are not followed.
func refusesSink(status int) bool {
	switch status {
	case http.StatusSwitchingProtocols, // the sink never requests it
		http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusProxyAuthRequired, http.StatusGone, http.StatusUpgradeRequired,
		http.StatusPreconditionRequired, http.StatusUnavailableForLegalReasons,
		http.StatusNotImplemented, http.StatusHTTPVersionNotSupported, http.StatusNetworkAuthenticationRequired:
		return true
	}
	return status/100 == 3
}

// usesRetryAfter reports whether the Retry-After of a status counts.
func usesRetryAfter(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// isTemporary reports whether a retry may get another status. A 409 is temporary: for an
// idempotency key, it means that an earlier attempt is still in progress.
func isTemporary(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusMisdirectedRequest, http.StatusLocked,
		http.StatusFailedDependency, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// noResponse returns the error of an attempt without a response. ctx is the engine's context,
// and bounded the same with the client's timeout.
//
// If the guard refuses a host from data, the notification is the cause. A fixed host belongs to the
// sink, and its name may resolve to a private address only temporarily.
func (c *Client) noResponse(ctx, bounded context.Context, r request, err error) error {
	var guarded *guardError
	to := r.to
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", to.target, ctx.Err())
	case errors.As(err, &guarded) && c.open:
		return sinks.Invalid(fmt.Errorf("%s: %w", to.target, err))
	case isUnreachable(err):
		return sinks.Unavailable(fmt.Errorf("%s: %w", to.target, r.excerpt().credentials.Error(err)))
	case bounded.Err() != nil:
		return sinks.Transient(fmt.Errorf("%s: no response within %s: %w", to.target, c.timeout, bounded.Err()))
	case isLost(err):
		return sinks.Transient(fmt.Errorf("%s: %w", to.target, err))
	}
	text := r.excerpt().without(to.url).clean(err.Error())
	return sinks.Transient(sinks.WithAnswer(&unreadable{to.target, err}, text))
}

// isLost reports whether an error is about the connection. Any other may quote the answer.
func isLost(err error) bool {
	var network net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, errNotProcessed) || errors.Is(err, errLostAgain)
}

// unreadable is an answer that is not HTTP. Its text leaves out that of net/http, which quotes the
// answer.
type unreadable struct {
	target string
	err    error
}

func (e *unreadable) Error() string { return e.target + ": the answer cannot be read" }
func (e *unreadable) Unwrap() error { return e.err }

// isUnreachable reports whether an error is about making the connection. Nearly all such errors
// come from the client's dialer and are a connectError. The others are those of TLS with a server
// behind a proxy, of a SOCKS proxy, and of a TLS 1.3 server that rejects the client after the
// handshake. With HTTP/2, net/http does not always return the latter.
func isUnreachable(err error) bool {
	var (
		connect     *connectError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		network     *net.OpError
	)
	switch {
	case errors.As(err, &connect), errors.As(err, &certificate), errors.As(err, &record):
		return true
	case errors.As(err, &network):
		// The other operations are "dial", "socks connect", and "remote error" or "local
		// error" for a TLS alert.
		return network.Op != "read" && network.Op != "write"
	}
	return false
}

// drain reads the rest of a body and closes it, so that the connection can be used again.
func drain(resp *http.Response) {
	// After an error, only the connection is lost: the status has been read.
	_, _ = io.CopyN(io.Discard, resp.Body, drainLimit)
	_ = resp.Body.Close()
}

// excerpt prepares texts of a destination for errors: short and valid, without the sink's
// credentials, which some servers repeat.
type excerpt struct {
	limit       int
	credentials redact.Credentials
}

func newExcerpt(limit int, credentials []string) excerpt {
	return excerpt{limit, redact.New(credentials...)}
}

// without returns an excerpt that also removes the parts of a URL that may be secret: path and
// query as a whole, and the values in the query. Many servers repeat an unknown path.
func (x excerpt) without(u *url.URL) excerpt {
	secrets := []string{u.RequestURI(), u.EscapedPath(), u.Path, u.RawQuery}
	for _, values := range u.Query() {
		secrets = append(secrets, values...)
	}
	return excerpt{x.limit, x.credentials.With(secrets...)}
}

// clean cuts text off at the limit, removes credentials, including one that is cut off at the
// end, and makes it one line of valid UTF-8. It removes NUL, which PostgreSQL cannot store.
func (x excerpt) clean(text string) string {
	cut := len(text) >= x.limit
	text = x.credentials.Text(text[:min(len(text), x.limit)])
	if cut {
		text = x.credentials.TrimCut(text)
	}
	text = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || unicode.IsControl(r) {
			return ' ' // Map gives ReplacementChar for invalid bytes
		}
		return r
	}, text)
	return strings.Join(strings.Fields(text), " ")
}
