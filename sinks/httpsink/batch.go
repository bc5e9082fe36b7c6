package httpsink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// maxRefusals is how many single events of a batch may be refused in a row. After that, the
// destination is assumed to refuse all events, so the sink is unavailable, and the other
// events do not become dead.
const maxRefusals = 3

// errPreviousFailed is the error of an event that was not sent because an earlier event of its
// key failed. It is transient; the engine does not count an attempt.
var errPreviousFailed = errors.New("not sent, because an earlier one of its key failed in the same batch")

// BatchLimits returns the limits of the configuration in the format [FormatBatch]. In other
// formats, the sink makes no batches.
func (s *Sink) BatchLimits() sinks.BatchLimits { return s.batch }

// DeliverBatch sends the events in order, in one request if max_bytes allows. The destination
// accepts or refuses a request as a whole. If it refuses one permanently, the events are sent
// again in halves, until the refused event is alone and is the only one with a permanent error.
// The sink's timeout limits the whole batch.
func (s *Sink) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	run := &batchRun{
		batch:   batch,
		results: make([]sinks.Result, len(batch)),
		size:    len(batch),
		failed:  make(map[string]bool),
	}
	deadline := time.Now().Add(s.client.timeout)
	for part := run.part(); len(part) > 0; part = run.part() {
		r, n := s.batchRequest(part)
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.header)) // the request's; each event also has its own
		_, receipt, err := s.client.send(ctx, deadline, r)
		run.settle(n, receipt, err)
	}
	return run.results
}

// batchRun is the progress of a batch.
type batchRun struct {
	batch    []*notification.Delivery
	results  []sinks.Result
	next     int             // index of the first delivery without a result
	size     int             // largest number of events in the next request
	places   []int           // indexes of the deliveries in the current part
	failed   map[string]bool // keys whose later deliveries are not sent
	refusals int             // single events refused since the last success
}

// part returns the deliveries to send next; none at the end.
func (r *batchRun) part() (part []*notification.Delivery) {
	n := min(r.size, len(r.batch)-r.next)
	part, r.places = make([]*notification.Delivery, 0, n), make([]int, 0, n)
	for i := r.next; i < len(r.batch) && len(part) < r.size; i++ {
		d := r.batch[i]
		if r.failed[d.Key] {
			r.results[i].Err = errPreviousFailed
			continue
		}
		part, r.places = append(part, d), append(r.places, i)
	}
	return part
}

// settle records the result of a request with the first n deliveries of the part. If the
// request was refused permanently and n is more than 1, it records nothing, and the next part
// is half as large.
func (r *batchRun) settle(n int, receipt notification.Receipt, err error) {
	class, _ := sinks.Classify(err)
	if class == sinks.ClassPermanent && n > 1 {
		r.size = n / 2
		return
	}
	for _, i := range r.places[:n] {
		r.results[i] = sinks.Result{Receipt: receipt, Err: err}
		if key := r.batch[i].Key; err != nil && key != "" {
			r.failed[key] = true
		}
	}
	r.next = r.places[n-1] + 1
	r.size = min(2*r.size, len(r.batch))
	switch {
	case err == nil:
		r.refusals = 0
	case class == sinks.ClassPermanent:
		if r.refusals++; r.refusals == maxRefusals {
			r.end(sinks.Unavailable(fmt.Errorf("%d events in a row were refused, the rest was not sent: %w", maxRefusals, err)))
		}
	case class != sinks.ClassTransient, errors.Is(err, context.DeadlineExceeded):
		r.end(err) // nothing can be sent now
	}
}

// end gives the deliveries that were not sent the same error.
func (r *batchRun) end(err error) {
	for i := r.next; i < len(r.batch); i++ {
		r.results[i].Err = err
	}
	r.next = len(r.batch)
}
