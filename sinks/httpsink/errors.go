package httpsink

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
)

// Errors of a [Receiver] about a request.
var (
	// ErrSignature is about one that none of the receiver's secrets has signed lately.
	ErrSignature = errors.New("request is not signed by the sender")
	// ErrEnvelope is about one that is signed and holds no notification in the
	// format that the receiver expects.
	ErrEnvelope = errors.New("request holds no notification")
)

// ResponseError is a response that did not take the delivery.
type ResponseError struct {
	// Target is the method with the scheme and host of the URL, such as
	// "POST https://partner.example". Path and query are left out: with many
	// receivers they are the password.
	Target string
	// Status is the response's code.
	Status int
	// Location is where a redirect points to, "" for every other response.
	Location string
	// Body is the start of the response's body: valid UTF-8 without control
	// characters, at most max_response_bytes long, the sink's own credentials, and
	// the URL's path and query, replaced by "***". It may be empty.
	Body string
}

func (e *ResponseError) Error() string {
	var b strings.Builder
	b.WriteString(e.Target + ": " + strconv.Itoa(e.Status))
	if text := http.StatusText(e.Status); text != "" {
		b.WriteString(" " + text)
	}
	if e.Status/100 == 3 {
		if e.Location != "" {
			b.WriteString(" to " + e.Location)
		}
		b.WriteString("; redirects are not followed, set url to the place itself")
	}
	if e.Body != "" {
		b.WriteString(": " + e.Body)
	}
	return b.String()
}

// connectError is whatever went wrong before a connection stood: name
// resolution, TCP, TLS, the proxy. The dialer makes it, so its type alone tells
// that the destination was never reached.
type connectError struct{ err error }

func (e *connectError) Error() string { return e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }
