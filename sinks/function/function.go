// Package function makes sinks of the application's own functions, for types
// that are known to a [registry.Registry]:
//
//	sink := function.Handle(types, func(ctx context.Context, o OrderPlaced) error {
//		return warehouse.Reserve(ctx, o.Items)
//	})
//
// and several types in one sink, which shares its parallelism, its retries and
// its order by key between them:
//
//	sink := function.Mux(types,
//		function.On(reserve),           // func(context.Context, OrderPlaced) error
//		function.OnDelivery(dispatch),  // func(context.Context, *notification.Delivery, OrderShipped) error
//	)
//
// A handler gets the newest version of its type, whatever was stored: the
// registry's aliases and upcasters apply. A type or a version that only a newer
// program knows is unknown, so tried again while a deploy may be under way. What
// else cannot be decoded is permanent, so dead at once with its bytes kept. What a
// handler returns has the class that
// it gives with [sinks.Permanent] and its neighbours, and is transient without.
//
// A notification can come twice, as to every sink: a handler that must not act
// twice keeps the envelope's id together with its effect, see [HandleDelivery].
package function

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// Errors of Open, joined.
var (
	// ErrNoHandlers: a sink was made without any handler.
	ErrNoHandlers = errors.New("no handlers")
	// ErrDuplicateHandler: two handlers have the same type.
	ErrDuplicateHandler = errors.New("type has two handlers")
)

// ErrNoHandler is unknown: a delivery's type is registered and none of the sink's
// handlers is for it. A newer deploy may have parked it.
var ErrNoHandler = errors.New("no handler for the type")

// Handle returns a sink that hands each notification of type T to handle, which
// must be safe for parallel calls and returns soon after its context ended. It
// gives no receipts.
//
// T must be registered when the sink is opened: [registry.ErrUnregistered] stops
// the forwarder's start otherwise. Deliveries of another type are unknown.
func Handle[T any](types *registry.Registry, handle func(context.Context, T) error) sinks.Sink {
	return Mux(types, On(handle))
}

// HandleDelivery is [Handle] for a function that also needs what came with the
// notification: the envelope with its id, time and metadata, and the number of
// the attempt. The delivery is only to be read, and not to be kept.
func HandleDelivery[T any](types *registry.Registry, handle func(context.Context, *notification.Delivery, T) error) sinks.Sink {
	return Mux(types, OnDelivery(handle))
}

// Handler handles one type in a [Mux]. Make it with [On] or [OnDelivery]; the
// zero value is of no use.
type Handler struct {
	// name returns the registered name of the handler's type.
	name func(types *registry.Registry) (string, error)
	// handle decodes and calls the function.
	handle func(ctx context.Context, types *registry.Registry, d *notification.Delivery) error
}

// On handles type T with the function; see [Handle].
func On[T any](handle func(context.Context, T) error) Handler {
	return OnDelivery(func(ctx context.Context, _ *notification.Delivery, v T) error { return handle(ctx, v) })
}

// OnDelivery handles type T with the function; see [HandleDelivery].
func OnDelivery[T any](handle func(context.Context, *notification.Delivery, T) error) Handler {
	return Handler{
		name: registry.NameOf[T],
		handle: func(ctx context.Context, types *registry.Registry, d *notification.Delivery) error {
			v, err := registry.Decode[T](types, d.Envelope)
			if err != nil {
				return undecoded(err)
			}
			return handle(ctx, d, v)
		},
	}
}

// undecoded gives an error of registry.Decode its class.
func undecoded(err error) error {
	if errors.Is(err, registry.ErrUnknownType) || errors.Is(err, registry.ErrNewerVersion) {
		return sinks.Unknown(err)
	}
	return sinks.Permanent(err)
}

// Mux returns a sink that hands each notification to the handler of its type. A
// delivery that has none is unknown, with ErrNoHandler.
//
// What is wrong with the handlers is found when the sink is opened, all at once:
// ErrNoHandlers, ErrDuplicateHandler, and [registry.ErrUnregistered] for types
// that have no name by then.
func Mux(types *registry.Registry, handlers ...Handler) sinks.Sink {
	s := &sink{types: types}
	s.byName = sync.OnceValues(func() (map[string]Handler, error) { return byName(types, handlers) })
	return s
}

// sink is what all functions of the package make.
type sink struct {
	types *registry.Registry
	// byName finds the handlers, at the first call.
	byName func() (map[string]Handler, error)
}

var (
	_ sinks.Sink   = (*sink)(nil)
	_ sinks.Opener = (*sink)(nil)
)

// Open reports what is wrong with the handlers.
func (s *sink) Open(context.Context) error {
	_, err := s.byName()
	return err
}

// Deliver decodes the notification and calls its handler.
func (s *sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	handlers, err := s.byName()
	if err != nil {
		return "", sinks.Unavailable(err) // was not opened: no delivery is to blame
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	handler, ok := handlers[d.Type]
	if !ok {
		return "", sinks.Unknown(s.noHandler(handlers, d))
	}
	return "", handler.handle(ctx, s.types, d)
}

func (s *sink) noHandler(handlers map[string]Handler, d *notification.Delivery) error {
	if _, known := s.types.Lookup(d.Type); !known {
		_, err := s.types.Decode(d.Envelope) // says what to do
		return err
	}
	return fmt.Errorf("%w %q; the sink's are %s: add one, or route it elsewhere",
		ErrNoHandler, d.Type, strings.Join(slices.Sorted(maps.Keys(handlers)), ", "))
}

// byName returns the handlers by the names and aliases of their types.
func byName(types *registry.Registry, handlers []Handler) (map[string]Handler, error) {
	if len(handlers) == 0 {
		return nil, fmt.Errorf("%w: add one with function.On", ErrNoHandlers)
	}
	named := make(map[string]Handler, len(handlers))
	var problems []error
	for _, h := range handlers {
		name, err := h.name(types)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if _, taken := named[name]; taken {
			problems = append(problems, fmt.Errorf("%w: %q", ErrDuplicateHandler, name))
		}
		named[name] = h
		info, _ := types.Lookup(name)
		for _, alias := range info.Aliases {
			named[alias] = h
		}
	}
	return named, errors.Join(problems...)
}
