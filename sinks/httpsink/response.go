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
)

const (
	// maxRetryAfter caps what a destination can ask for: no typing error on
	// the other side may stop a sink for days.
	maxRetryAfter = time.Hour

	// drainLimit is how much of a response's body is read so that its
	// connection can serve again. Beyond it a new connection is cheaper.
	drainLimit = 256 << 10

	// bodyTime is how long the body of a response may take, whatever is read of it.
	// The status is known by then, so a delivery does not wait for more.
	bodyTime = 300 * time.Millisecond
)

// receiptHeaders are customary names for a request's id at its destination.
var receiptHeaders = []string{"X-Request-Id", "Request-Id", "X-Message-Id"}

// maxReceiptID keeps receipts readable and small.
const maxReceiptID = 128

// receipt makes the proof of a delivery: the status, and the id that the
// destination gave it, if it did.
func (s *Sink) receipt(resp *http.Response) notification.Receipt {
	receipt := "http " + strconv.Itoa(resp.StatusCode)
	for _, name := range s.receiptHeaders {
		if values := resp.Header[name]; len(values) > 0 && values[0] != "" {
			id := s.excerpt.clean(values[0])
			return notification.Receipt(strings.TrimRight(receipt+" "+strings.ToValidUTF8(id[:min(len(id), maxReceiptID)], ""), " "))
		}
	}
	return notification.Receipt(receipt)
}

// refused makes the error of a response that is not 2xx.
//
// What refuses the sink as a whole is unavailable: no delivery is to blame. Where
// the URL comes from data it is about that URL only, so the delivery is retried.
func (s *Sink) refused(to place, resp *http.Response) error {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close() // it is the connection itself and has no end
		resp.Body = http.NoBody
	}
	excerpt := s.excerpt.without(to.url)
	e := &ResponseError{
		Target: to.target,
		Status: resp.StatusCode,
		Body:   excerpt.read(resp.Body),
	}
	if e.Status/100 == 3 {
		e.Location = excerpt.clean(resp.Header.Get("Location"))
	}
	until, asked := retryAfter(resp.Header.Get("Retry-After"), s.now())
	switch {
	case e.Status == http.StatusProxyAuthRequired && s.connections.proxied():
		return sinks.Unavailable(e) // the proxy speaks, and would to every delivery
	case refusesSink(e.Status) && s.destination.template == nil:
		return sinks.Unavailable(e)
	case mayWait(e.Status) && asked:
		return sinks.Throttled(until, e)
	case refusesSink(e.Status), mayWait(e.Status), mayPass(e.Status):
		return sinks.Transient(e)
	}
	return sinks.Permanent(e)
}

// refusesSink reports the statuses that are about the address, the credentials or
// the configuration, whatever is sent. Redirects are among them, as they are not
// followed.
func refusesSink(status int) bool {
	switch status {
	case http.StatusSwitchingProtocols, // the sink never asks for it
		http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusProxyAuthRequired, http.StatusGone, http.StatusUpgradeRequired,
		http.StatusPreconditionRequired, http.StatusUnavailableForLegalReasons,
		http.StatusNotImplemented, http.StatusHTTPVersionNotSupported, http.StatusNetworkAuthenticationRequired:
		return true
	}
	return status/100 == 3
}

// mayWait reports the statuses whose Retry-After counts.
func mayWait(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// mayPass reports the statuses that are about the moment. A 409 is: with an
// idempotency key it says that an earlier attempt is still in progress.
func mayPass(status int) bool {
	switch status {
	case http.StatusConflict, http.StatusMisdirectedRequest, http.StatusLocked, http.StatusFailedDependency:
		return true
	}
	return status >= 500
}

// retryAfter reads both forms of RFC 9110, section 10.2.3: seconds and an HTTP
// date. Not ok: absent, unreadable, or not in the future.
func retryAfter(value string, now time.Time) (until time.Time, ok bool) {
	limit := now.Add(maxRetryAfter)
	seconds, err := strconv.ParseUint(value, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && seconds > uint64(maxRetryAfter/time.Second):
		return limit, true
	case err == nil:
		until = now.Add(time.Duration(seconds) * time.Second)
	default:
		if until, err = http.ParseTime(value); err != nil {
			return time.Time{}, false
		}
	}
	if until.After(limit) {
		until = limit
	}
	return until, until.After(now)
}

// unanswered makes the error of an attempt that got no response. ctx is the
// engine's, bounded the same with the sink's timeout.
//
// Where hosts come from data, a delivery is dead if the guard refuses its host. A
// fixed host is the sink's: a name may lead into a private network for a moment.
func (s *Sink) unanswered(ctx, bounded context.Context, target string, err error) error {
	var guarded *guardError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", target, ctx.Err())
	case errors.As(err, &guarded) && s.destination.open:
		return sinks.Permanent(fmt.Errorf("%s: %w", target, err))
	case unreachable(err):
		return sinks.Unavailable(fmt.Errorf("%s: %w", target, err))
	case bounded.Err() != nil:
		return sinks.Transient(fmt.Errorf("%s: no response within %s: %w", target, s.timeout, bounded.Err()))
	}
	return sinks.Transient(fmt.Errorf("%s: %w", target, err))
}

// unreachable reports errors about the connection from those about a request.
// Nearly all come from our own dialer. What is left: TLS with the server behind
// a proxy, what a SOCKS proxy reports, and a TLS 1.3 server that rejects the
// client only after the handshake, as far as net/http passes its alert on
// (HTTP/2 not always).
func unreachable(err error) bool {
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
		// The rest is "dial", "socks connect", and "remote error" or "local
		// error" for an alert of TLS.
		return network.Op != "read" && network.Op != "write"
	}
	return false
}

// drain reads what is left of a body and closes it, so that the connection can
// be used again.
func drain(resp *http.Response) {
	// An error only costs the connection: the status has been read.
	_, _ = io.CopyN(io.Discard, resp.Body, drainLimit)
	_ = resp.Body.Close()
}

// excerpt makes what a destination says fit for an error: short, valid text
// without the sink's own credentials, which some servers echo.
type excerpt struct {
	limit       int
	credentials redact.Credentials
}

func newExcerpt(limit int, credentials []string) excerpt {
	return excerpt{limit, redact.New(credentials...)}
}

// without leaves out what of a URL is secret too: path and query, as a whole, and the
// values in the query. Servers that do not know a path like to repeat it.
func (x excerpt) without(u *url.URL) excerpt {
	secrets := []string{u.RequestURI(), u.EscapedPath(), u.Path, u.RawQuery}
	for _, values := range u.Query() {
		secrets = append(secrets, values...)
	}
	return excerpt{x.limit, x.credentials.With(secrets...)}
}

// read returns the start of body, or what came of it before an error.
func (x excerpt) read(body io.Reader) string {
	raw, _ := io.ReadAll(io.LimitReader(body, int64(x.limit)))
	return x.clean(string(raw))
}

// clean bounds text to the limit, removes credentials, also one cut off at the
// end, and makes it one line of valid UTF-8. No NUL is left, which PostgreSQL
// could not store.
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
