package forwarder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// activeSink is a sink of a forwarder, with its dispatcher.
type activeSink struct {
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

// noRoute is the sink of notifications without a route: every delivery to it is dead, and its
// envelope is kept.
type noRoute struct{}

func (noRoute) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	return "", sinks.Invalid(ErrNoRoute)
}

// newSinks returns the sinks that this forwarder works on, including that of notifications without
// a route. It opens nothing.
func (f *Forwarder) newSinks(to map[string]Sink, routes *route.Table) map[string]*activeSink {
	all := make(map[string]*activeSink, len(to)+1)
	for name, sink := range to {
		if f.leavesOut(name) {
			continue
		}
		all[name] = f.newSink(name, sink, routes, routes.Filter(name))
	}
	if unrouted := routes.Unrouted(); f.config.Unrouted == UnroutedPark && !unrouted.None() {
		all[store.SinkUnrouted] = f.newSink(store.SinkUnrouted, Sink{Sink: noRoute{}}.WithDefaults(), routes, unrouted)
	}
	return all
}

// leavesOut reports whether a sink is left to other forwarders.
func (f *Forwarder) leavesOut(sink string) bool {
	return len(f.config.Only) > 0 && !slices.Contains(f.config.Only, sink)
}

func (f *Forwarder) newSink(name string, sink Sink, routes *route.Table, types notification.TypeFilter) *activeSink {
	a := &activeSink{Sink: sink, name: name, path: routes.To(name), types: types}
	a.caller = &caller.Caller{Path: a.path, Deliver: deliverOf(sink), AnswerBytes: sink.answerBytes(), Private: f.shows(sink), Opener: opener{f, a}}
	if name != store.SinkUnrouted {
		a.caller.Check = f.config.Check
	}
	a.caller.Addresser, _ = sink.Sink.(sinks.Addresser)
	a.caller.Groups = sink.groups(f.config.Types, f.config.Logger.With("sink", name))
	a.dispatcher = dispatch.New(dispatch.Config{
		Sink: name, Caller: a.caller, TypeOf: routes.TypeOf, Settings: sink.settings(), Collect: sink.Collect, Types: f.config.Types,
		Budget: f.memory, Observer: f.config.Observer, Tracing: f.tracing(name, sink), Logger: f.config.Logger,
	})
	return a
}

// groups returns how the sink's deliveries are collected; nil if they are not.
func (s Sink) groups(types *registry.Registry, log *slog.Logger) *caller.Groups {
	if !s.Collect.On() {
		return nil
	}
	by, err := s.Collect.Group()
	if err != nil {
		panic(err) // it was checked
	}
	g := &caller.Groups{By: by, Types: types, Logger: log, Newest: s.Collect.Keep == KeepNewest}
	g.Collector, _ = s.Sink.(sinks.Collector)
	return g
}

// tracing returns the spans of a sink. Notifications without a route have none.
func (f *Forwarder) tracing(name string, sink Sink) *tracing.Deliveries {
	if name == store.SinkUnrouted {
		return nil
	}
	return tracing.NewDeliveries(f.config.TracerProvider, name, sink.Trace == TraceNone)
}

// transactorOf returns a sink that delivers exactly once, or nil for any other.
func transactorOf(s Sink) sinks.Transactor {
	if t, ok := s.Sink.(sinks.Transactor); ok && t.Transacts() {
		return t
	}
	return nil
}

// differsOnlyInSettings reports whether two sinks differ only in what Adjust can change.
func (a *activeSink) differsOnlyInSettings(other *activeSink) bool {
	return isSame(a.Sink.Sink, other.Sink.Sink) && a.Hooks.Same(other.Hooks) && sameMiddleware(a.Middleware, other.Middleware) &&
		a.Start == other.Start && a.Collect == other.Collect && a.Trace == other.Trace && a.OnDead == other.OnDead && a.private() == other.private() && a.Erased == other.Erased && a.answerBytes() == other.answerBytes() && reflect.DeepEqual(a.types, other.types) && a.path.Equal(other.path)
}

// sameMiddleware reports whether two lists are the same list: functions cannot be compared.
func sameMiddleware(a, b []message.HandlerMiddleware) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// isSame reports whether two sinks are the same value. Values that cannot be compared, such as
// functions, are not.
func isSame(a, b sinks.Sink) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// activeSinks returns the present sinks. The map is never modified.
func (f *Forwarder) activeSinks() map[string]*activeSink {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sinks
}

// names returns the names of the sinks, in alphabetical order.
func (f *Forwarder) names() []string { return slices.Sorted(maps.Keys(f.activeSinks())) }

// Takes returns the types of each configured sink, and of _unrouted if it is worked on, as a store.SampleQuery has
// them. It follows Reload.
func (f *Forwarder) Takes() map[string]notification.TypeFilter {
	f.mu.Lock()
	defer f.mu.Unlock()
	takes := make(map[string]notification.TypeFilter, len(f.configured))
	for _, sink := range f.configured {
		takes[sink] = f.routes.Filter(sink)
	}
	if a := f.sinks[store.SinkUnrouted]; a != nil {
		takes[store.SinkUnrouted] = a.types
	}
	return takes
}

// known returns the names of all configured sinks, and of _unrouted if it is worked on.
func (f *Forwarder) known() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(slices.Clone(f.configured), maps.Keys(f.sinks)))))
}

// opener opens the sink of a caller.
type opener struct {
	forwarder *Forwarder
	sink      *activeSink
}

var _ sinks.Opener = opener{}

// Open opens the sink if it is not open since an earlier configuration, and sets up its batches.
func (o opener) Open(ctx context.Context) error {
	f, a := o.forwarder, o.sink
	if !f.isOpen(a.Sink.Sink) {
		if o, ok := a.Sink.Sink.(sinks.Opener); ok {
			if err := o.Open(ctx); err != nil {
				return err
			}
		}
		f.mu.Lock()
		f.opened = append(f.opened, opened{a.name, a.Sink.Sink})
		f.mu.Unlock()
	}
	batcher, ok := a.Sink.Sink.(sinks.Batcher)
	if !ok || len(a.Middleware) > 0 {
		return nil
	}
	limits := batcher.BatchLimits()
	if err := dispatch.CheckBatch(a.name, limits); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if limits.Size > 1 {
		a.dispatcher.UseBatches(batcher, limits)
	}
	return nil
}

func (f *Forwarder) isOpen(sink sinks.Sink) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.opened, func(o opened) bool { return isSame(o.sink, sink) })
}

// openSinks opens all sinks. One that fails to open is opened again before its first delivery.
func (f *Forwarder) openSinks(ctx context.Context) error {
	active := f.activeSinks()
	for _, name := range slices.Sorted(maps.Keys(active)) {
		switch err := active[name].caller.Open(ctx); {
		case errors.Is(err, ErrConfig):
			return fmt.Errorf("sink %s: %w", name, err)
		case err != nil:
			f.config.Logger.Error("the sink is unavailable: opening it failed, and is tried again with the next delivery", "sink", name, "error", err)
		}
	}
	return nil
}

// closeSinks closes all open sinks.
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
