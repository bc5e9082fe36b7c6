package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

// unavailableFor is the Retry-After, in seconds, if no transaction can begin.
const unavailableFor = 10

// Handler makes the effects of an HTTP handler happen once for each webhook: it runs next in
// a transaction of Config.DB or Config.Pgx that stores the request's id. [Tx] returns that
// transaction from the request's context. Verify signatures first: otherwise anyone could block
// a real request by sending its id first:
//
//	once, err := inbox.Handler(inbox.Config{Inbox: box, DB: db, Consumer: "invoices"}, next)
//	handler, err := webhook.Receiver{Secrets: secrets}.Verify(once)
//
// Handler holds back the response of next. If its status is 2xx, it commits and then sends the
// response. With any other status, and if next panics, it rolls back, and sends the response
// unchanged. Handler itself responds with:
//
//	200  the request was already handled; next is not called
//	400  the request has no id, or one that is too long
//	500  the commit failed, or collided with another request with this id
//	503  with Retry-After of 10 s: no transaction can begin, or no id can be stored
//
// A request waits while another one with the same id is being handled. The id is that of
// Standard Webhooks (webhook-id), which is signed; without it, that of a request of the http
// sink without secrets (waybill-id), or of a CloudEvent (ce-id).
//
// If the sender disconnects, the context ends and the transaction rolls back. Handler returns
// [ErrConfig] if a required field of Config, including Consumer, is missing. The handler is safe
// for concurrent use. Each request in flight holds a connection, and its response in memory: the
// ResponseWriter cannot flush or be hijacked.
func Handler(c Config, next http.Handler) (http.Handler, error) {
	if err := c.checkConsumer(); err != nil {
		return nil, err
	}
	if next == nil {
		return nil, fmt.Errorf("%w, and so is a handler", ErrConfig)
	}
	return &receiving{c, next}, nil
}

type receiving struct {
	config Config
	next   http.Handler
}

func (h *receiving) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, err := requestID(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := &response{header: make(http.Header)}
	began, err := h.config.once(r.Context(), h.config.Consumer, id, func(ctx context.Context) error {
		h.next.ServeHTTP(answer, r.WithContext(ctx))
		if !answer.isSuccess() {
			return errNoSuccess
		}
		return nil
	})
	switch {
	case err == nil && !began:
		w.WriteHeader(http.StatusOK)
	case err == nil, errors.Is(err, errNoSuccess):
		answer.send(w)
	case began, errors.Is(err, store.ErrCollision):
		reply(w, http.StatusInternalServerError)
	case errors.Is(err, ErrName):
		reply(w, http.StatusBadRequest)
	default:
		w.Header().Set("Retry-After", fmt.Sprint(unavailableFor))
		reply(w, http.StatusServiceUnavailable)
	}
}

// reply sends a status without the error, which the sender must not see.
func reply(w http.ResponseWriter, status int) { http.Error(w, http.StatusText(status), status) }

// requestID returns the request's id. The http sink percent-encodes it. Ids of other senders
// consist of letters and digits, which decoding does not change.
func requestID(r *http.Request) (string, error) {
	for _, name := range []string{webhook.HeaderWebhookID, webhook.HeaderID, "Ce-Id"} {
		if value := r.Header.Get(name); value != "" {
			id, err := url.PathUnescape(value)
			if err != nil {
				return "", fmt.Errorf("header %s: %w", name, err)
			}
			return id, nil
		}
	}
	return "", errors.New("the request has no header Webhook-Id, Waybill-Id or Ce-Id")
}

// response is a response that is held back.
type response struct {
	header http.Header // what the handler has set
	sent   http.Header // header at the time of WriteHeader
	status int
	body   bytes.Buffer
}

// Header returns the headers to send; changes after WriteHeader have no effect.
func (a *response) Header() http.Header { return a.header }

// WriteHeader keeps the first final status. Informational ones are not sent.
func (a *response) WriteHeader(status int) {
	if status >= 200 && a.status == 0 {
		a.status, a.sent = status, a.header.Clone()
	}
}

// Write adds to the body, with the status 200 if none was set.
func (a *response) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// isSuccess reports whether the status is 2xx. Without a status it is 200.
func (a *response) isSuccess() bool {
	a.WriteHeader(http.StatusOK)
	return a.status < 300
}

// send sends the response. If the connection fails, the sender notices and repeats the
// request.
func (a *response) send(w http.ResponseWriter) {
	for name, values := range a.sent {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes())
}
