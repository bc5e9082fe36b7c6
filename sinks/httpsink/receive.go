package httpsink

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

// unavailableFor is how long senders are asked to wait for a sink that is unavailable.
const unavailableFor = 10 * time.Second

// Receive returns a handler of requests in the format [FormatEnvelope], which hands each
// notification to a sink of this program, most of all to functions:
//
//	handler, err := httpsink.Receive(
//		httpsink.Receiver{Secrets: []string{os.Getenv("WEBHOOK_SECRET")}},
//		function.Mux(types, function.On(reserve)),
//	)
//
// The sender's http sink makes of the answer what the sink says here:
//
//	delivered      204
//	transient      500: the sender tries again
//	unknown        500, too: another deploy may know the type
//	throttled      429 with Retry-After: the sender waits until then, an hour at most
//	unavailable    503 with Retry-After of 10 s: the sender waits, and spends no attempt
//	permanent      422: the notification is dead at the sender
//
// What does not come to the sink: a method other than POST and PUT is 405 and a bad
// signature 401, with both of which the sender waits, since one of the two ends has a wrong
// setting and no notification is to blame; a body that is too large is 413 and one that is
// signed but no envelope 422, which make it dead; one that did not arrive within 10 s is
// 408, and the sender tries again.
//
// The answer holds no error of the sink, since that may tell of this program what its sender
// must not know: the log does. The attempt of the delivery is what the sender says; it is not
// signed. The context ends when the sender hangs up. A notification can come twice.
//
// The caller opens the sink before, if it is a [sinks.Opener], and closes it after the
// server. The error says that a secret is none, or what is wrong with a [sinks.Typed].
func Receive(from Receiver, sink sinks.Sink) (http.Handler, error) {
	if _, err := from.verifiers(); err != nil {
		return nil, err
	}
	if typed, ok := sink.(sinks.Typed); ok {
		if _, err := typed.HandledTypes(); err != nil {
			return nil, err
		}
	}
	return &receiving{from, sink}, nil
}

// receiving is what Receive makes.
type receiving struct {
	from Receiver
	sink sinks.Sink
}

func (h *receiving) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var e *notification.Envelope
	if !h.from.accept(w, r, func() (err error) {
		e, err = h.from.envelope(w, r)
		return err
	}) {
		return
	}
	d := &notification.Delivery{Envelope: e, Sink: cmp.Or(h.from.Sink, "webhook"), Attempt: attemptOf(r)}
	err := h.deliver(r.Context(), d)
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	class, until := sinks.Classify(err)
	h.from.logger().WarnContext(r.Context(), "a notification was not taken", "type", e.Type, "id", e.ID, "class", class.String(), "error", err)
	switch class {
	case sinks.ClassThrottled:
		askToWait(w, time.Until(until))
		reply(w, http.StatusTooManyRequests)
	case sinks.ClassUnavailable:
		askToWait(w, unavailableFor)
		reply(w, http.StatusServiceUnavailable)
	case sinks.ClassPermanent:
		reply(w, http.StatusUnprocessableEntity)
	default:
		reply(w, http.StatusInternalServerError)
	}
}

// deliver has a sink that panics answer like one that fails: without an answer a sender
// would think that the connection was lost, and send the same at once on another one.
func (h *receiving) deliver(ctx context.Context, d *notification.Delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the sink panicked: %v\n%s", p, debug.Stack())
		}
	}()
	_, err = h.sink.Deliver(ctx, d)
	return err
}

// accept reads a request, and answers one that is refused. It bounds the time that the body
// may take, unless the server does.
func (v Receiver) accept(w http.ResponseWriter, r *http.Request, read func() error) bool {
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		w.Header().Set("Allow", "POST, PUT")
		reply(w, http.StatusMethodNotAllowed)
		return false
	}
	control := http.NewResponseController(w)
	// A server that has no deadlines, as in a test, reads without.
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); !ok || s.ReadTimeout == 0 {
		_ = control.SetReadDeadline(time.Now().Add(DefaultTimeout))
	}
	if err := read(); err != nil {
		v.logger().WarnContext(r.Context(), "a request was refused", "error", err)
		w.Header().Set("Connection", "close") // the rest of a body is not waited for
		reply(w, statusOfRequest(err))
		return false
	}
	_ = control.SetReadDeadline(time.Time{}) // all is read; the context would end with it
	return true
}

func (v Receiver) logger() *slog.Logger { return cmp.Or(v.Logger, slog.New(slog.DiscardHandler)) }

// statusOfRequest is for a request that does not come to the sink.
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

// askToWait rounds up: 0 s would ask for nothing.
func askToWait(w http.ResponseWriter, wait time.Duration) {
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
