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

// maxRefusals is how many events of a batch may be refused one by one, with none
// delivered in between. After that the destination is taken to refuse them all: the
// sink waits, instead of asking for each and killing it.
const maxRefusals = 3

// errBehind is that of an event that was not sent, since an earlier one of its key
// failed in the same batch. It is transient; the engine counts no attempt.
var errBehind = errors.New("an earlier one of its key failed in the same batch")

// BatchLimits are those of the configuration, in the format [FormatBatch]; in
// any other there are no batches.
func (s *Sink) BatchLimits() sinks.BatchLimits { return s.batch }

// DeliverBatch sends the events in their order, in one request if max_bytes allows.
// The destination takes or refuses a request as a whole. One that it refuses for good
// is cut in half, until the event that is to blame is alone and is the only one with
// a permanent error. The timeout holds for the whole batch.
func (s *Sink) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	run := &batchRun{
		batch:   batch,
		results: make([]sinks.Result, len(batch)),
		size:    len(batch),
		failed:  make(map[string]bool),
	}
	deadline := time.Now().Add(s.timeout)
	for part := run.part(); len(part) > 0; part = run.part() {
		m, n := s.batchMessage(part)
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(m.header)) // each event has its own
		receipt, err := s.send(ctx, deadline, s.destination.fixed, m)
		run.settle(n, receipt, err)
	}
	return run.results
}

// batchRun is how far a batch has come.
type batchRun struct {
	batch    []*notification.Delivery
	results  []sinks.Result
	next     int             // the first without a result
	size     int             // how many the next request may have
	places   []int           // of the part that is under way
	failed   map[string]bool // keys, of which nothing more may be sent
	refusals int             // of single events, since the last that was delivered
}

// part returns what goes next; nothing at the end.
func (r *batchRun) part() (part []*notification.Delivery) {
	n := min(r.size, len(r.batch)-r.next)
	part, r.places = make([]*notification.Delivery, 0, n), make([]int, 0, n)
	for i := r.next; i < len(r.batch) && len(part) < r.size; i++ {
		d := r.batch[i]
		if r.failed[d.Key] {
			r.results[i].Err = errBehind
			continue
		}
		part, r.places = append(part, d), append(r.places, i)
	}
	return part
}

// settle keeps what came of the first n of the part: they were sent. If there is
// nothing to keep yet, the next part is half as large.
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

// end gives the rest the same error, unsent.
func (r *batchRun) end(err error) {
	for i := r.next; i < len(r.batch); i++ {
		r.results[i].Err = err
	}
	r.next = len(r.batch)
}
