// Package function makes sinks of your own functions, for types that are registered
// in a [registry.Registry]:
//
//	sink := function.Handle(types, func(ctx context.Context, o OrderPlaced) error {
//		return warehouse.Reserve(ctx, o.Items)
//	})
//
// One sink can handle several types, which then share its parallelism, its retries
// and the order of their keys:
//
//	sink := function.Mux(types,
//		function.On(reserve),           // func(context.Context, OrderPlaced) error
//		function.OnDelivery(dispatch),  // func(context.Context, *notification.Delivery, OrderShipped) error
//	)
//
// A function for many notifications gets collections of them, which come from the setting collect of
// the sink: see [OnMany].
//
// A handler gets the newest version of its type: the registry's aliases and upcasters
// apply. A type or version that is not registered is [sinks.Unknown], and is retried
// for as long as a rolling deploy may take. A payload that cannot be decoded is
// [sinks.Invalid]. A handler's error has the class that the handler gives it, with
// [sinks.Permanent] and the like; without a class it is transient.
//
// As with every sink, a notification can come twice. A handler that must not act
// twice stores the envelope's id together with its effect; see [HandleDelivery].
package function

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// ErrNoHandlers means that a sink has no functions, or a nil one. Making a forwarder
// with the sink returns it, and so does Open of package waybill.
var ErrNoHandlers = errors.New("no handlers")

// ErrNoHandler means that a delivery's type is registered but the sink has no handler
// for it. Its class is unknown, because a newer program may have one.
var ErrNoHandler = errors.New("no handler for the type")

// Handle returns a sink that calls the functions with each notification of type T. They
// must be safe for concurrent use, and return soon after their context has ended. The
// sink returns no receipts.
//
// Several functions run one after another, each with its own copy of the value. The
// first error ends the attempt, and the next attempt calls all of them again: a function
// that must not act twice checks the delivery's id, see [HandleDelivery]. To retry
// functions separately, make a sink for each.
//
// T must be registered when a forwarder is made with the sink, which is refused with
// [registry.ErrUnregistered] otherwise. Deliveries of another type are unknown.
func Handle[T any](types *registry.Registry, functions ...func(context.Context, T) error) sinks.Sink {
	return Mux(types, On(functions...))
}

// HandleDelivery is like [Handle] for functions that also need the delivery: the envelope
// with its id, time and metadata, and the number of the attempt. They must not change or
// keep the delivery.
func HandleDelivery[T any](types *registry.Registry, functions ...func(context.Context, *notification.Delivery, T) error) sinks.Sink {
	return Mux(types, OnDelivery(functions...))
}

// Handler handles one type in a [Mux], or several that implement an interface. Make it with [On],
// [OnDelivery], [OnMany] or [OnCollection]; the zero value is invalid.
type Handler struct {
	// names returns the registered names of the handler's types.
	names func(types *registry.Registry) ([]string, error)
	// handle decodes and calls the functions.
	handle func(ctx context.Context, types *registry.Registry, d *notification.Delivery) error
	// handleAll does so with a collection; nil if the functions take one notification.
	handleAll func(ctx context.Context, types *registry.Registry, c *sinks.Collection) error
}

// On handles type T with the functions; see [Handle].
func On[T any](functions ...func(context.Context, T) error) Handler {
	withDelivery := make([]func(context.Context, *notification.Delivery, T) error, len(functions))
	for i, handle := range functions {
		if handle != nil {
			withDelivery[i] = func(ctx context.Context, _ *notification.Delivery, v T) error { return handle(ctx, v) }
		}
	}
	return OnDelivery(withDelivery...)
}

// OnDelivery handles type T with the functions; see [HandleDelivery].
func OnDelivery[T any](functions ...func(context.Context, *notification.Delivery, T) error) Handler {
	return Handler{
		names: func(types *registry.Registry) ([]string, error) {
			isNil := func(handle func(context.Context, *notification.Delivery, T) error) bool { return handle == nil }
			if len(functions) == 0 || slices.ContainsFunc(functions, isNil) {
				return nil, noFunction[T]()
			}
			name, err := registry.NameOf[T](types)
			return []string{name}, err
		},
		handle: func(ctx context.Context, types *registry.Registry, d *notification.Delivery) error {
			for _, handle := range functions {
				v, err := registry.Decode[T](types, d.Envelope)
				if err != nil {
					return classifyDecode(err)
				}
				if err := handle(ctx, d, v); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// OnMany handles collections of type T with the function, which gets all members, oldest first. They
// come from the setting collect of the sink. A notification that comes alone is a slice of one.
//
// If T is an interface, the function handles all registered types that implement it, and so
// collections of several types: with [any], all of the registry.
//
// The function's error is about the collection as a whole. What it publishes has the last member as
// its cause.
func OnMany[T any](function func(ctx context.Context, all []T) error) Handler {
	if function == nil {
		return OnCollection[T](nil)
	}
	return OnCollection(func(ctx context.Context, _ *sinks.Collection, all []T) error { return function(ctx, all) })
}

// OnCollection is [OnMany] for a function that also needs the collection: its id, by which a function
// that must not act twice recognizes a repeat, and its deliveries. It must not change or keep them. A
// notification that comes alone is a collection with its own id, and its key, or its id without one,
// as the group.
func OnCollection[T any](function func(ctx context.Context, c *sinks.Collection, all []T) error) Handler {
	handleAll := func(ctx context.Context, types *registry.Registry, c *sinks.Collection) error {
		ctx = context.WithValue(ctx, callKey{}, c)
		all := make([]T, len(c.Members))
		for i, d := range c.Members {
			var err error
			if all[i], err = decode[T](types, d.Envelope); err != nil {
				return classifyDecode(err)
			}
		}
		return function(ctx, c, all)
	}
	return Handler{
		names: func(types *registry.Registry) ([]string, error) {
			if function == nil {
				return nil, noFunction[T]()
			}
			return registry.NamesOf[T](types)
		},
		handle: func(ctx context.Context, types *registry.Registry, d *notification.Delivery) error {
			return handleAll(ctx, types, &sinks.Collection{
				Sink: d.Sink, ID: d.ID, Group: cmp.Or(d.Key, d.ID), Attempt: d.Attempt, Members: []*notification.Delivery{d},
			})
		},
		handleAll: handleAll,
	}
}

// callKey is the context key of what a function was called for: a delivery or a collection.
type callKey struct{}

// DeliveryFrom returns the delivery for which a function was called, with the notification's id, time and
// metadata, and the number of the attempt. It is for functions that do not get it as a parameter, and for
// what they call. It returns nil outside of a function, and in one for many: see [CollectionFrom]. The
// delivery must be neither kept nor changed.
func DeliveryFrom(ctx context.Context) *notification.Delivery {
	d, _ := ctx.Value(callKey{}).(*notification.Delivery)
	return d
}

// CollectionFrom returns the collection for which a function for many was called, with its id, which is the
// same in each attempt, and the deliveries of its members in the order of the values. It returns nil
// elsewhere. The collection must be neither kept nor changed.
func CollectionFrom(ctx context.Context) *sinks.Collection {
	c, _ := ctx.Value(callKey{}).(*sinks.Collection)
	return c
}

// decode is registry.Decode that also decodes to an interface.
func decode[T any](types *registry.Registry, e *notification.Envelope) (T, error) {
	if reflect.TypeFor[T]().Kind() != reflect.Interface {
		return registry.Decode[T](types, e)
	}
	v, err := types.Decode(e)
	as, is := v.(T)
	if !is && err == nil { // only types that implement it, or to which a pointer does, reach its handler
		p := reflect.New(reflect.TypeOf(v))
		p.Elem().Set(reflect.ValueOf(v))
		as = p.Interface().(T)
	}
	return as, err
}

func noFunction[T any]() error {
	return fmt.Errorf("%w: a function for %s is missing or nil", ErrNoHandlers, reflect.TypeFor[T]())
}

// classifyDecode returns an error of registry.Decode with its class.
func classifyDecode(err error) error {
	if errors.Is(err, registry.ErrUnknownType) || errors.Is(err, registry.ErrNewerVersion) {
		return sinks.Unknown(err)
	}
	return sinks.Invalid(err)
}

// Mux returns a sink that calls the handlers of each notification's type. Several handlers
// of a type run in order, as the functions of [Handle] do. A delivery without a handler is
// unknown, with ErrNoHandler.
//
// The sink is a [sinks.Collector] if a handler is for collections. Those handlers are then called that
// handle the types of all members; without one, the collection is unknown, with ErrNoHandler.
//
// Making a forwarder with the sink returns all mistakes of the handlers: ErrNoHandlers, and
// [registry.ErrUnregistered] for types that are not registered by then.
func Mux(types *registry.Registry, handlers ...Handler) sinks.Sink {
	s := &sink{types: types}
	s.byName = sync.OnceValues(func() (map[string][]*Handler, error) { return byName(types, handlers) })
	if slices.ContainsFunc(handlers, func(h Handler) bool { return h.handleAll != nil }) {
		return &collector{s}
	}
	return s
}

// sink is the sink of all constructors.
type sink struct {
	types *registry.Registry
	// byName returns the handlers by name. The first call finds them.
	byName func() (map[string][]*Handler, error)
}

var (
	_ sinks.Sink   = (*sink)(nil)
	_ sinks.Opener = (*sink)(nil)
	_ sinks.Typed  = (*sink)(nil)
)

// HandledTypes lists the types that have a handler.
func (s *sink) HandledTypes() ([]sinks.HandledType, error) {
	handlers, err := s.byName()
	if err != nil {
		return nil, err
	}
	var handled []sinks.HandledType
	for _, name := range slices.Sorted(maps.Keys(handlers)) {
		if info, _ := s.types.Lookup(name); info.Name == name {
			handled = append(handled, sinks.HandledType{Name: name, Aliases: info.Aliases})
		}
	}
	return handled, nil
}

// Open returns the mistakes of the handlers.
func (s *sink) Open(context.Context) error {
	_, err := s.byName()
	return err
}

// RevealsPrivate implements [sinks.Revealer].
func (*sink) RevealsPrivate() bool { return true }

// Deliver decodes the notification and calls its handlers, until one fails.
func (s *sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	handlers, err := s.ready(ctx)
	if err != nil {
		return "", err
	}
	own, ok := handlers[d.Type]
	if !ok {
		return "", sinks.Unknown(s.noHandler(handlers, d))
	}
	ctx = context.WithValue(notification.WithCause(ctx, d.Envelope), callKey{}, d)
	for _, h := range own {
		if err := h.handle(ctx, s.types, d); err != nil {
			return "", err
		}
	}
	return "", nil
}

// ready returns the handlers by name, unless a call cannot begin.
func (s *sink) ready(ctx context.Context) (map[string][]*Handler, error) {
	handlers, err := s.byName()
	if err != nil {
		return nil, sinks.Unavailable(err) // Open would have returned it; the delivery is not the cause
	}
	return handlers, ctx.Err()
}

func (s *sink) noHandler(handlers map[string][]*Handler, d *notification.Delivery) error {
	if _, known := s.types.Lookup(d.Type); !known {
		_, err := s.types.Decode(d.Envelope) // its error has a hint
		return err
	}
	return fmt.Errorf("%w %q; the sink has handlers for %s: add one, or route the type elsewhere",
		ErrNoHandler, d.Type, strings.Join(slices.Sorted(maps.Keys(handlers)), ", "))
}

// collector is a sink with a handler for collections.
type collector struct{ *sink }

var _ sinks.Collector = (*collector)(nil)

// CollectionSize returns 0: functions take any number of members.
func (s *collector) CollectionSize() int { return 0 }

// DeliverCollection decodes the members and calls the handlers of all their types, until one fails.
func (s *collector) DeliverCollection(ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
	handlers, err := s.ready(ctx)
	if err != nil {
		return "", err
	}
	common := slices.Clone(handlers[c.Members[0].Type])
	for _, d := range c.Members {
		own, ok := handlers[d.Type]
		if !ok {
			return "", sinks.Unknown(s.noHandler(handlers, d))
		}
		common = slices.DeleteFunc(common, func(h *Handler) bool { return h.handleAll == nil || !slices.Contains(own, h) })
	}
	if len(common) == 0 {
		return "", sinks.Unknown(noCommon(c))
	}
	ctx = notification.WithCause(ctx, c.Members[len(c.Members)-1].Envelope)
	for _, h := range common {
		if err := h.handleAll(ctx, s.types, c); err != nil {
			return "", err
		}
	}
	return "", nil
}

func noCommon(c *sinks.Collection) error {
	types := make(map[string]bool)
	for _, d := range c.Members {
		types[d.Type] = true
	}
	return fmt.Errorf("%w of a collection: no function takes many of %s; add one with OnMany, for several types with an interface that all of them implement",
		ErrNoHandler, strings.Join(slices.Sorted(maps.Keys(types)), ", "))
}

// byName returns the handlers by the names and aliases of their types.
func byName(types *registry.Registry, handlers []Handler) (map[string][]*Handler, error) {
	if len(handlers) == 0 {
		return nil, fmt.Errorf("%w: add one with function.On", ErrNoHandlers)
	}
	if types == nil {
		return nil, fmt.Errorf("%w: the registry of types is nil", ErrNoHandlers)
	}
	named := make(map[string][]*Handler, len(handlers))
	var problems []error
	for i := range handlers {
		h := &handlers[i]
		if h.names == nil {
			problems = append(problems, fmt.Errorf("%w: make one with function.On", ErrNoHandlers))
			continue
		}
		names, err := h.names(types)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, name := range names {
			info, _ := types.Lookup(name)
			for _, n := range append([]string{name}, info.Aliases...) {
				named[n] = append(named[n], h)
			}
		}
	}
	return named, errors.Join(problems...)
}

// Kind is the sink kind function, whose sinks have handlers that the program supplies by
// the name of the sink in the configuration, like [Mux]. The types are those of
// [sinks.Instance]. A sink whose name has no handlers is [sinks.Absent]. Each wrap gets the sink of the
// handlers, and returns the one that takes its place.
func Kind(handlers map[string][]Handler, wrap ...func(in sinks.Instance, handlers sinks.Sink) sinks.Sink) sinks.Kind {
	return sinks.NewKind("function", "functions of the program, for types that it knows",
		func(in sinks.Instance, _ struct{}) (sinks.Sink, error) {
			own, ok := handlers[in.Name]
			switch {
			case !ok:
				return sinks.Absent(in.Name), nil
			case in.Types == nil:
				return nil, errors.New("the program has functions for this sink, but no types")
			}
			made := Mux(in.Types, own...)
			for _, w := range wrap {
				made = w(in, made)
			}
			return made, nil
		},
		sinks.Answer{Says: "nil, from all functions of the type", Means: "delivered, without a receipt"},
		sinks.Answer{Says: "`sinks.Permanent`, `Invalid`, `Throttled`, `Unavailable`, `Unknown`", Means: "as the function says"},
		sinks.Answer{Says: "any other error, and a panic", Means: "transient"},
		sinks.Answer{Says: "no function is called: the program does not know the type or its version, or has no function for it", Means: "unknown"},
		sinks.Answer{Says: "no function is called: the payload cannot be decoded", Means: "invalid"},
	)
}
