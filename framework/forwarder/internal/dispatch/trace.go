package dispatch

import (
	"context"
	"errors"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/tracing"
	"github.com/waybill-go/waybill/sinks"
)

// deliver makes a worker's call, in a span if there is tracing.
func (d *Dispatcher) deliver(worker *call) {
	if d.tracing == nil {
		worker.results = d.call(worker.ctx, worker, nil)
		return
	}
	var traced tracing.Call
	if worker.probe {
		traced = d.tracing.Unspanned(worker.ctx, worker.deliveries)
	} else {
		traced = d.tracing.Begin(worker.ctx, worker.deliveries, worker.began)
	}
	worker.results = d.call(traced.Context, worker, traced.Seen)
	if worker.probe && !stillDown(worker.results) {
		traced = d.tracing.Begin(worker.ctx, worker.deliveries, worker.began)
	}
	worker.span = traced.Span
	traced.End(func(i int) error {
		if err := worker.results[i].Err; !errors.Is(err, caller.ErrPassesBy) {
			return err
		}
		return nil
	})
}

// stillDown reports that a probe found the sink still down. Such a probe gets no span, or an
// outage would fill the traces with them.
func stillDown(results []sinks.Result) bool {
	class, _ := sinks.Classify(results[0].Err)
	return results[0].Err != nil && (class == sinks.ClassUnavailable || class == sinks.ClassThrottled || class == sinks.ClassCancelled)
}

// logged returns the context for log lines about the call being settled.
func (d *Dispatcher) logged() context.Context {
	if d.settling == nil {
		return context.Background()
	}
	return d.settling
}
