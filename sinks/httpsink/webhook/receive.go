package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// bodyTimeout limits the time for a body.
const bodyTimeout = 10 * time.Second

// unavailableFor is how long senders must wait if the sink is unavailable.
const unavailableFor = 10 * time.Second

// Receive returns a handler of requests in the format envelope. It delivers each
// notification to a sink of this program, usually one of functions:
//
//	handler, err := webhook.Receive(
//		webhook.Receiver{Secrets: []string{os.Getenv("WEBHOOK_SECRET")}},
//		function.Mux(types, function.On(reserve)),
//	)
//
// The handler answers with a status that means the same to the sender's http sink:
//
//	delivered      204
//	transient      500: the sender retries
//	unknown        500: the sender retries, and another deployment may know the type
//	throttled      429 with Retry-After: the sender waits until then, for at most an hour
//	unavailable    503 with Retry-After of 10 s: the sender waits, and uses up no attempt
//	permanent      422: the delivery is dead at the sender
//
// A request with a collection goes to the sink as one, if it is a [sinks.Collector]; otherwise it is
// answered with 422.
//
// Some requests are refused before they reach the sink. A method other than POST and PUT is
// answered with 405, and a bad signature with 401: the sender then waits, because one of the
// two has a wrong setting. A body that is too large is answered with 413, and a signed body
// that is not an envelope with 422: the delivery is then dead. A body that did not arrive
// within 10 s is answered with 408, and the sender retries.
//
// Answers do not contain the sink's errors, because these may be confidential. They are
// logged. The number of the attempt comes from a header that is not signed. The context ends
// when the sender closes the connection. A notification can come twice.
//
// If the sink is a [sinks.Opener] or a [sinks.Closer], the caller opens it before and closes it
// after the server. Receive returns an error for an invalid secret, and that of a
// [sinks.Typed].
func Receive(from Receiver, sink sinks.Sink) (http.Handler, error) {
	if _, err := from.verifiers(); err != nil {
		return nil, err
	}
	if typed, ok := sink.(sinks.Typed); ok {
		if _, err := typed.HandledTypes(); err != nil {
			return nil, err
		}
	}
	return &receiveHandler{from, sink}, nil
}

// receiveHandler is the handler of Receive.
type receiveHandler struct {
	from Receiver
	sink sinks.Sink
}

func (h *receiveHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var a *arrival
	if !h.from.accept(w, r, func() (err error) {
		a, err = h.read(w, r)
		return err
	}) {
		return
	}
	err := a.deliver(r.Context())
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	class, until := sinks.Classify(err)
	h.from.logger().WarnContext(r.Context(), "a received "+a.kind+" was not delivered", "type", a.typ, "id", a.id, "class", class.String(), "error", sinks.Brief(err))
	switch class {
	case sinks.ClassThrottled:
		setRetryAfter(w, time.Until(until))
		reply(w, http.StatusTooManyRequests)
	case sinks.ClassUnavailable:
		setRetryAfter(w, unavailableFor)
		reply(w, http.StatusServiceUnavailable)
	case sinks.ClassPermanent, sinks.ClassInvalid:
		reply(w, http.StatusUnprocessableEntity)
	default:
		reply(w, http.StatusInternalServerError)
	}
}

// arrival is what a request has: a notification or a collection of them.
type arrival struct {
	kind, id, typ string
	call          func(context.Context) (notification.Receipt, error)
}

// read verifies and reads a request.
func (h *receiveHandler) read(w http.ResponseWriter, r *http.Request) (*arrival, error) {
	id, body, err := h.from.open(w, r)
	if err != nil {
		return nil, err
	}
	m, err := parse(id, body)
	switch {
	case err != nil:
		return nil, err
	case m.Items != nil:
		c, err := h.from.collection(r, m)
		collector, ok := h.sink.(sinks.Collector)
		if err == nil && !ok {
			err = fmt.Errorf("%w: it is a collection, and the sink takes none", ErrEnvelope)
		}
		return &arrival{"collection", id, "", func(ctx context.Context) (notification.Receipt, error) { return collector.DeliverCollection(ctx, c) }}, err
	}
	e, err := envelopeOf(&m.Message)
	if err != nil {
		return nil, err
	}
	d := h.from.delivery(r, e)
	return &arrival{"notification", id, e.Type, func(ctx context.Context) (notification.Receipt, error) { return h.sink.Deliver(ctx, d) }}, nil
}

// deliver calls the sink, and returns an error if it panics. Without an answer, the sender would
// assume that the connection was lost, and repeat the request at once.
func (a *arrival) deliver(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the sink panicked: %v\n%s", p, debug.Stack())
		}
	}()
	_, err = a.call(ctx)
	return err
}

// accept reads a request and returns true, or refuses it and answers. It limits the time for
// the body unless the server does.
func (v Receiver) accept(w http.ResponseWriter, r *http.Request, read func() error) bool {
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		w.Header().Set("Allow", "POST, PUT")
		reply(w, http.StatusMethodNotAllowed)
		return false
	}
	control := http.NewResponseController(w)
	// SetReadDeadline fails for a server without deadlines, as in a test.
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); !ok || s.ReadTimeout == 0 {
		_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	if err := read(); err != nil {
		v.logger().WarnContext(r.Context(), "a request was refused", "error", err)
		w.Header().Set("Connection", "close") // so that the server does not wait for the rest of the body
		reply(w, statusOfRequest(err))
		return false
	}
	_ = control.SetReadDeadline(time.Time{}) // otherwise the context would end at the deadline
	return true
}

func (v Receiver) logger() *slog.Logger { return cmp.Or(v.Logger, slog.New(slog.DiscardHandler)) }

// statusOfRequest returns the status for a request that is refused before it reaches the sink.
func statusOfRequest(err error) int {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, ErrSignature):
		return http.StatusUnauthorized
	case errors.Is(err, ErrEnvelope):
		return http.StatusUnprocessableEntity
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusRequestTimeout // the body did not arrive
}

func reply(w http.ResponseWriter, status int) { http.Error(w, http.StatusText(status), status) }

// setRetryAfter rounds up to at least 1 s, because 0 s would not make the sender wait.
func setRetryAfter(w http.ResponseWriter, wait time.Duration) {
	seconds := max(1, int(math.Ceil(wait.Seconds())))
	w.Header().Set("Retry-After", fmt.Sprint(seconds))
}

func attemptOf(r *http.Request) int {
	attempt, err := strconv.Atoi(r.Header.Get(HeaderAttempt))
	if err != nil {
		return 1
	}
	return max(1, attempt)
}
