package bench

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill/benchmarks/durations"
	"github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// watch counts and measures the deliveries of a sink. A delivery counts when the sink has returned a
// receipt.
type watch struct {
	receipts tally
	calls    *durations.Histogram  // how long calls took; nil if not measured
	waits    *receiver.Waits       // from commit to receipt; nil if not measured
	problem  atomic.Pointer[error] // the error of the last failed delivery; nil if none failed
}

// watched is a sink with a watch. It opens and closes the sink inside.
type watched struct {
	inner sinks.Sink
	watch *watch
}

var (
	_ sinks.Opener  = watched{}
	_ sinks.Closer  = watched{}
	_ sinks.Batcher = watchedBatcher{}
)

// watchedBatcher is a sinks.Batcher with a watch.
type watchedBatcher struct {
	watched
	batcher sinks.Batcher
}

// on wraps a sink with the watch. The result is a sinks.Batcher if the sink is one.
func (w *watch) on(s sinks.Sink) sinks.Sink {
	if batcher, ok := s.(sinks.Batcher); ok {
		return watchedBatcher{watched{s, w}, batcher}
	}
	return watched{s, w}
}

func (s watched) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	began := time.Now()
	receipt, err := s.inner.Deliver(ctx, d)
	s.watch.called(began, time.Now())
	if err == nil {
		s.watch.delivered(d.ID)
	} else {
		s.watch.problem.Store(&err)
	}
	return receipt, err
}

func (s watched) Open(ctx context.Context) error {
	if opener, ok := s.inner.(sinks.Opener); ok {
		return opener.Open(ctx)
	}
	return nil
}

func (s watched) Close(ctx context.Context) error {
	if closer, ok := s.inner.(sinks.Closer); ok {
		return closer.Close(ctx)
	}
	return nil
}

func (s watchedBatcher) BatchLimits() sinks.BatchLimits { return s.batcher.BatchLimits() }

func (s watchedBatcher) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	began := time.Now()
	results := s.batcher.DeliverBatch(ctx, batch)
	s.watch.called(began, time.Now())
	for i, r := range results {
		switch {
		case r.Err != nil:
			s.watch.problem.Store(&r.Err)
		case i < len(batch):
			s.watch.delivered(batch[i].ID)
		}
	}
	return results
}

func (w *watch) called(began, ended time.Time) {
	if w.calls != nil {
		w.calls.Record(ended.Sub(began))
	}
}

func (w *watch) delivered(id string) {
	if n, first := w.receipts.take(id); first && w.waits != nil {
		w.waits.Arrived(n, time.Now())
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
