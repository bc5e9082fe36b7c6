package httpsink

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// ResponseError is a response with a status other than 2xx.
type ResponseError struct {
	// Target is the method with the scheme and host of the URL, such as
	// "POST https://partner.example". Path and query are left out, because for many
	// receivers they are a secret.
	Target string
	// Status is the status code.
	Status int
	// Location is the target of a redirect; "" for other responses. The text of the error has its host only, and the
	// error of a delivery begins its answer with it.
	Location string
	// Body is the beginning of the response's body, at most [sinks.MaxAnswer] bytes long. It is
	// one line of valid UTF-8. The sink's credentials and the URL's path and query are
	// replaced by "***". It may be empty. The error of a delivery has it in its answer: see
	// [sinks.WithAnswer].
	Body string
}

func (e *ResponseError) Error() string {
	var b strings.Builder
	b.WriteString(e.Target + ": " + strconv.Itoa(e.Status))
	if text := http.StatusText(e.Status); text != "" {
		b.WriteString(" " + text)
	}
	if e.Status/100 == 3 {
		if to, err := url.Parse(e.Location); err == nil && to.Host != "" {
			b.WriteString(" to " + to.Scheme + "://" + to.Host) // the rest may repeat private data
		}
		b.WriteString("; redirects are not followed, set url to the final address")
	}
	return b.String()
}

// connectError is an error before a connection was made: of name resolution, TCP, TLS or the
// proxy. So the destination was not reached.
type connectError struct{ err error }

func (e *connectError) Error() string { return e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }
