package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

// unavailableFor is how many seconds senders are asked to wait where no transaction can be
// had.
const unavailableFor = 10

// Handler makes the effects of an HTTP handler happen once for each webhook: it runs next in
// a transaction of Config.DB that notes the request's id. [Tx] finds the transaction in the
// request's context. Verify signatures outside of it, since an id that anyone can choose
// keeps the true one out:
//
//	once, err := inbox.Handler(inbox.Config{Inbox: box, DB: db, Consumer: "invoices"}, next)
//	handler, err := httpsink.Receiver{Secrets: secrets}.Verify(once)
//
// The response of next is held back. A status of 2xx commits, and is sent behind the commit;
// every other one rolls back, as a panic does, and is sent as it is. What else is answered:
//
//	200  the request was handled before; next is not called
//	400  it has no id, or one that is too long
//	500  the commit failed, or another request with this id was in the way
//	503  with Retry-After of 10 s: no transaction can be begun, or no id noted
//
// A request waits while another one with its id is being handled. The id is that of Standard
// Webhooks (webhook-id), which is signed; without one, that of a request of the http sink without
// secrets, or of a CloudEvent (ce-id).
//
// When the sender hangs up the context ends, which rolls back. It returns [ErrConfig] if a
// field of Config is missing that it needs, Consumer too. The handler is safe for concurrent
// use; each request in hand keeps a connection, and its response in memory: the ResponseWriter
// cannot flush or be hijacked.
func Handler(c Config, next http.Handler) (http.Handler, error) {
	if err := c.checkConsumer(); err != nil {
		return nil, err
	}
	if next == nil {
		return nil, fmt.Errorf("%w: there is no handler either", ErrConfig)
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
		if !answer.taken() {
			return errNotTaken
		}
		return nil
	})
	switch {
	case err == nil && !began:
		w.WriteHeader(http.StatusOK)
	case err == nil, errors.Is(err, errNotTaken):
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

// reply does not say what went wrong inside, which a sender must not know.
func reply(w http.ResponseWriter, status int) { http.Error(w, http.StatusText(status), status) }

// requestID is percent-encoded in the headers of the http sink. Other senders of webhooks
// have ids of letters and digits, which stay as they are.
func requestID(r *http.Request) (string, error) {
	for _, name := range []string{httpsink.HeaderWebhookID, httpsink.HeaderID, "Ce-Id"} {
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

// response is an answer that is held back.
type response struct {
	header http.Header // of the handler, until it says the status
	sent   http.Header // as it was then
	status int
	body   bytes.Buffer
}

// Header is what the handler sets before it writes.
func (a *response) Header() http.Header { return a.header }

// WriteHeader takes the first status. Informational ones are not passed on.
func (a *response) WriteHeader(status int) {
	if status >= 200 && a.status == 0 {
		a.status, a.sent = status, a.header.Clone()
	}
}

// Write is 200 where no status was written.
func (a *response) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// taken reports whether the status is 2xx, which it is without one.
func (a *response) taken() bool {
	a.WriteHeader(http.StatusOK)
	return a.status < 300
}

// send sends what was held back. An error of the connection is the sender's to notice: the
// request comes again.
func (a *response) send(w http.ResponseWriter) {
	for name, values := range a.sent {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes())
}
