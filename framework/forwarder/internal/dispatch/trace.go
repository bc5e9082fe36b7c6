package dispatch

import (
	"context"
	"errors"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/tracing"
	"github.com/waybill-go/waybill/sinks"
)

// deliver makes a worker's call, in a span if there is tracing.
func (d *Dispatcher) deliver(c *call) {
	if d.tracing == nil {
		c.results = d.call(c.ctx, c, nil)
		return
	}
	var traced tracing.Call
	if c.probe {
		traced = d.tracing.Unspanned(c.ctx, c.deliveries)
	} else {
		traced = d.tracing.Begin(c.ctx, c.deliveries, c.began)
	}
	c.results = d.call(traced.Context, c, traced.Seen)
	if c.probe && !stillDown(c.results) {
		traced = d.tracing.Begin(c.ctx, c.deliveries, c.began)
	}
	c.span = traced.Span
	traced.End(func(i int) error {
		if err := c.results[i].Err; !errors.Is(err, caller.ErrPassesBy) {
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
