package demo

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/program/internal/receiver"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
	hooks "github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

// refuseEvery is how often the webhook refuses a first attempt, to show retries.
const refuseEvery = 200

// webhook is the destination of the http sink: an endpoint that accepts everything except some first
// attempts.
type webhook struct {
	*receiver.Webhook
	attempts atomic.Int64 // first attempts
	got      *arrivals
}

var _ destination = (*webhook)(nil)

func openWebhook() (w *webhook, err error) {
	w = &webhook{got: newArrivals()}
	w.Webhook, err = receiver.OpenWebhook(w.take)
	return w, err
}

func (w *webhook) sink() (forwarder.Sink, error) {
	s, err := httpsink.New(sinks.Instance{Name: httpSink}, httpsink.Config{URL: w.URL})
	return forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: 16}, Retry: retry}, err
}

func (w *webhook) arrived() *arrivals { return w.got }

func (w *webhook) counts() string { return "answered 202" }

// take handles a request to the endpoint.
func (w *webhook) take(answer http.ResponseWriter, request *http.Request) {
	if _, err := io.Copy(io.Discard, request.Body); err != nil {
		return // the connection broke: the sink gets no answer and tries again
	}
	if request.Header.Get(hooks.HeaderAttempt) == "1" && w.attempts.Add(1)%refuseEvery == refuseEvery/2 {
		w.got.refuse()
		answer.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.got.add(request.Header.Get(hooks.HeaderID))
	answer.WriteHeader(http.StatusAccepted)
}

func (w *webhook) catchUp(context.Context) error { return nil }

func (w *webhook) close() error { return w.Close() }
