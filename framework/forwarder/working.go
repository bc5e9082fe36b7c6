package forwarder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/tracing"
	"github.com/waybill-go/waybill/sinks"
)

// working is a sink of a forwarder, with what works for it.
type working struct {
	Sink
	name       string
	path       *route.Path
	types      notification.TypeFilter
	caller     *caller.Caller
	dispatcher *dispatch.Dispatcher
}

// opened is a sink that is open.
type opened struct {
	name string
	sink sinks.Sink
}

// noRoute is the sink for notifications without a route: every delivery dies there,
// and its bytes are kept.
type noRoute struct{}

func (noRoute) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	return "", sinks.Permanent(ErrNoRoute)
}

// work makes what works for sinks, and for what has no route, as far as this forwarder works
// on them. Nothing is opened.
func (f *Forwarder) work(to map[string]Sink, routes *route.Table) map[string]*working {
	all := make(map[string]*working, len(to)+1)
	for name, sink := range to {
		if f.leavesOut(name) {
			continue
		}
		all[name] = f.workFor(name, sink, routes, routes.Filter(name))
	}
	if unrouted := routes.Unrouted(); f.config.Unrouted == UnroutedPark && !unrouted.None() {
		all[store.SinkUnrouted] = f.workFor(store.SinkUnrouted, Sink{Sink: noRoute{}}.WithDefaults(), routes, unrouted)
	}
	return all
}

// leavesOut says whether a sink is another forwarder's.
func (f *Forwarder) leavesOut(sink string) bool {
	return len(f.config.Only) > 0 && !slices.Contains(f.config.Only, sink)
}

func (f *Forwarder) workFor(name string, sink Sink, routes *route.Table, types notification.TypeFilter) *working {
	w := &working{Sink: sink, name: name, path: routes.To(name), types: types}
	w.caller = &caller.Caller{Path: w.path, Deliver: deliverOf(sink), Prepare: func(ctx context.Context) error { return f.prepare(ctx, w) }}
	w.caller.Addresser, _ = sink.Sink.(sinks.Addresser)
	w.dispatcher = dispatch.New(dispatch.Config{
		Sink: name, Caller: w.caller, TypeOf: routes.TypeOf, Settings: sink.settings(),
		Budget: f.memory, Observer: f.config.Observer, Tracing: f.tracing(name, sink), Logger: f.config.Logger,
	})
	return w
}

// tracing makes the spans of a sink. What has no route reaches none, and has no spans.
func (f *Forwarder) tracing(name string, sink Sink) *tracing.Deliveries {
	if name == store.SinkUnrouted {
		return nil
	}
	return tracing.NewDeliveries(f.config.TracerProvider, name, sink.Trace == TraceNone)
}

// transactorOf is a sink to which each delivery is to be made once; nil for any other.
func transactorOf(s Sink) sinks.Transactor {
	if t, ok := s.Sink.(sinks.Transactor); ok && t.Transacts() {
		return t
	}
	return nil
}

// likewise says whether a sink works as another one, but for what Adjust can change.
func (w *working) likewise(other *working) bool {
	return isSame(w.Sink.Sink, other.Sink.Sink) && w.Hooks.Same(other.Hooks) && sameMiddleware(w.Middleware, other.Middleware) &&
		w.Start == other.Start && w.Trace == other.Trace && w.OnDead == other.OnDead && reflect.DeepEqual(w.types, other.types) && w.path.Equal(other.path)
}

// sameMiddleware says whether two lists are one: functions cannot be compared.
func sameMiddleware(a, b []message.HandlerMiddleware) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// isSame says whether two sinks are one. What cannot be compared, such as a function, is
// not.
func isSame(a, b sinks.Sink) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// working are the sinks as they are now. The map is not changed any more.
func (f *Forwarder) working() map[string]*working {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sinks
}

// names are those of the sinks, in alphabetical order.
func (f *Forwarder) names() []string { return slices.Sorted(maps.Keys(f.working())) }

// known are the names of all sinks of the configuration, and of what has no route.
func (f *Forwarder) known() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(slices.Clone(f.configured), maps.Keys(f.sinks)))))
}

// prepare opens a sink, if it is to be opened and is not.
func (f *Forwarder) prepare(ctx context.Context, w *working) error {
	if !f.isOpen(w.Sink.Sink) {
		if o, ok := w.Sink.Sink.(sinks.Opener); ok {
			if err := o.Open(ctx); err != nil {
				return err
			}
		}
		f.mu.Lock()
		f.opened = append(f.opened, opened{w.name, w.Sink.Sink})
		f.mu.Unlock()
	}
	batcher, ok := w.Sink.Sink.(sinks.Batcher)
	if !ok || len(w.Middleware) > 0 {
		return nil
	}
	limits := batcher.BatchLimits()
	if err := dispatch.CheckBatch(w.name, limits); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if limits.Size > 1 {
		w.dispatcher.UseBatches(batcher, limits)
	}
	return nil
}

func (f *Forwarder) isOpen(sink sinks.Sink) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.opened, func(o opened) bool { return isSame(o.sink, sink) })
}

// openSinks opens what can be opened. What cannot is tried again with the first delivery.
func (f *Forwarder) openSinks(ctx context.Context) error {
	work := f.working()
	for _, name := range slices.Sorted(maps.Keys(work)) {
		switch err := work[name].caller.Open(ctx); {
		case errors.Is(err, ErrConfig):
			return fmt.Errorf("sink %s: %w", name, err)
		case err != nil:
			f.config.Logger.Error("the sink is unavailable: it is opened with the next delivery", "sink", name, "error", err)
		}
	}
	return nil
}

// closeSinks closes all that is open.
func (f *Forwarder) closeSinks(ctx context.Context) error {
	f.mu.Lock()
	all := f.opened
	f.opened, f.stop = nil, nil
	f.mu.Unlock()
	return f.close(ctx, all)
}

// close closes sinks within the shutdown timeout.
func (f *Forwarder) close(ctx context.Context, open []opened) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.config.ShutdownTimeout)
	defer cancel()
	var errs []error
	for _, o := range open {
		closer, ok := o.sink.(sinks.Closer)
		if !ok {
			continue
		}
		if err := closer.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close sink %s: %w", o.name, err))
		}
	}
	return errors.Join(errs...)
}
