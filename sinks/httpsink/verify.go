package httpsink

import (
	"bytes"
	"errors"
	"io"
	"net/http"
)

// Verify returns a handler that hands on signed requests only, for receivers that have a
// net/http handler of their own; [Receive] is for those that have a sink. next reads the body
// as it was signed, in whatever format it is: also webhooks of other senders, if they keep to
// Standard Webhooks. Of the headers only the three of that standard are signed.
//
// What is refused is answered as by [Receive]: 401, 405, 408 and 413. A request can come
// twice: inbox.Handler has its effects once.
//
// The error says that a secret is none. The handler may be used in parallel.
func (v Receiver) Verify(next http.Handler) (http.Handler, error) {
	if _, err := v.verifiers(); err != nil {
		return nil, err
	}
	if next == nil {
		return nil, errors.New("there is no handler to hand requests on to")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body []byte
		if !v.accept(w, r, func() (err error) {
			_, body, err = v.open(w, r)
			return err
		}) {
			return
		}
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.ServeHTTP(w, r)
	}), nil
}
