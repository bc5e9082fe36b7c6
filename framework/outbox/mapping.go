package outbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
)

// Mapping says what is published for the domain events of one type, so that the packages that
// define them need to know neither notifications nor outboxes. [Map] and [Ignore] make
// mappings for [Config.Events].
//
// Publish looks up an event, whether a value or a pointer, in this order: the mapping of its
// type; its own type, if that is a registered notification; the first mapping of an interface
// that it implements. If none applies, Publish fails.
type Mapping struct {
	event reflect.Type
	to    func(ctx context.Context, event any) ([]any, error) // nil if Map was called with nil
}

// Map publishes the notifications that a function returns in place of each event of type E:
// none, one or several, in the returned order. Their types must be registered. They may be
// wrapped by [With], and are not mapped again. Options that wrap the event apply to all of them;
// their own take precedence. Publish calls the function and fails with its error. It must be
// safe for concurrent use.
//
// E is a concrete type, a pointer to one, or an interface with methods.
func Map[E any](to func(ctx context.Context, event E) ([]any, error)) Mapping {
	m := Mapping{event: reflect.TypeFor[E]()}
	if to != nil {
		m.to = func(ctx context.Context, event any) ([]any, error) { return to(ctx, eventAs[E](event)) }
	}
	return m
}

// Ignore publishes nothing for events of type E.
func Ignore[E any]() Mapping {
	return Map(func(context.Context, E) ([]any, error) { return nil, nil })
}

// eventAs converts an event to E, where one may be a pointer to the other.
func eventAs[E any](event any) E {
	switch e := event.(type) {
	case E:
		return e
	case *E:
		return *e
	}
	p := reflect.New(reflect.TypeOf(event))
	p.Elem().Set(reflect.ValueOf(event))
	return p.Interface().(E)
}

// mappings finds the mapping of an event.
type mappings struct {
	types      map[reflect.Type]Mapping // by the type, without pointer
	interfaces []Mapping
}

func newMappings(all []Mapping) (*mappings, error) {
	m := &mappings{types: make(map[reflect.Type]Mapping, len(all))}
	var problems []error
	for i, one := range all {
		if one.to == nil {
			problems = append(problems, fmt.Errorf("%w: mapping %d has no function: make it with outbox.Map or outbox.Ignore", ErrMapping, i+1))
			continue
		}
		base := baseOf(one.event)
		if _, twice := m.types[base]; twice {
			problems = append(problems, fmt.Errorf("%w: %s has two mappings: one mapping can return several notifications", ErrMapping, base))
		}
		m.types[base] = one
		switch {
		case base.Kind() != reflect.Interface:
		case base != one.event:
			problems = append(problems, fmt.Errorf("%w: %s is a pointer to an interface: use %s", ErrMapping, one.event, base))
		case base.NumMethod() == 0:
			problems = append(problems, fmt.Errorf("%w: every event implements %s: use an interface with a method", ErrMapping, base))
		default:
			m.interfaces = append(m.interfaces, one)
		}
	}
	return m, errors.Join(problems...)
}

// of finds the mapping of an event.
func (m *mappings) of(event any, types *registry.Registry) (Mapping, bool) {
	t := reflect.TypeOf(event)
	if len(m.types) == 0 || t == nil {
		return Mapping{}, false
	}
	if one, ok := m.types[baseOf(t)]; ok {
		return one, true
	}
	if len(m.interfaces) == 0 {
		return Mapping{}, false
	}
	if _, err := types.Name(event); err == nil {
		return Mapping{}, false
	}
	for _, one := range m.interfaces {
		if t.Implements(one.event) || reflect.PointerTo(t).Implements(one.event) {
			return one, true
		}
	}
	return Mapping{}, false
}

func baseOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// addMapped adds the notifications that an event is mapped to.
func (p *Publisher) addMapped(ctx context.Context, c *call, m Mapping, event any, options []Option) error {
	if v := reflect.ValueOf(event); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("%w: the %T is a nil pointer", registry.ErrNil, event)
	}
	notifications, err := m.to(ctx, event)
	if err != nil {
		return fmt.Errorf("map %T: %w", event, err)
	}
	first := len(c.envelopes)
	for _, n := range notifications {
		n, own := unwrap(n)
		if err := p.addOne(c, n, slices.Concat(options, own)); err != nil {
			return fmt.Errorf("map %T: %w", event, err)
		}
		added := &c.envelopes[len(c.envelopes)-1]
		if slices.ContainsFunc(c.envelopes[first:len(c.envelopes)-1], func(other notification.Envelope) bool { return other.ID == added.ID }) {
			return fmt.Errorf("map %T: %w: several notifications would have the id %q: set ids in the mapping's function", event, ErrMapping, added.ID)
		}
	}
	return nil
}
