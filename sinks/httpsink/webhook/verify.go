package webhook

import (
	"bytes"
	"errors"
	"io"
	"net/http"
)

// Verify returns a handler that passes only signed requests to next. It is for receivers with
// an [http.Handler]; [Receive] is for those with a sink. next reads the body as it was signed,
// in any format. So Verify also accepts webhooks of other senders that follow Standard
// Webhooks. Of the headers, only the three of that standard are signed.
//
// The handler answers refused requests as [Receive] does: with 401, 405, 408 and 413. A request
// can come twice; inbox.Handler applies it only once.
//
// Verify returns an error for an invalid secret, or if next is nil. The handler is safe for
// concurrent use.
func (v Receiver) Verify(next http.Handler) (http.Handler, error) {
	if _, err := v.verifiers(); err != nil {
		return nil, err
	}
	if next == nil {
		return nil, errors.New("the handler for verified requests is nil")
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
