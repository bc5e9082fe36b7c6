package route

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/sinks"
)

// Errors of CheckHandlers.
var (
	// ErrNoHandler: routes send a type to a sink that has no handler for it.
	ErrNoHandler = errors.New("no handler for the type")
	// ErrNoRoute: no route sends a type to the sink that has a handler for it.
	ErrNoRoute = errors.New("no route to the handler")
)

// CheckHandlers compares the handlers of a sink with its routes. It reports all problems at
// once: types without a handler as ErrNoHandler, and handlers without a route as ErrNoRoute.
// Types that are not registered are checked only if a route names them in full.
func (t *Table) CheckHandlers(sink string, handled []sinks.HandledType) error {
	h := handlers{table: t, sink: sink, handled: handled}
	var problems []error
	var patterns []string
	for _, pattern := range slices.Sorted(maps.Keys(t.rules)) {
		if slices.ContainsFunc(t.rules[pattern], func(r *rule) bool { return r.Sink == sink }) {
			patterns = append(patterns, pattern)
			problems = append(problems, h.check(pattern))
		}
	}
	for _, typ := range handled {
		if !slices.ContainsFunc(patterns, func(pattern string) bool { return h.brings(pattern, typ) }) {
			problems = append(problems, fmt.Errorf("sinks.%s: %w of %s: add %s to routes.%s, or remove the handler", sink, ErrNoRoute, typ.Name, sink, typ.Name))
		}
	}
	return errors.Join(problems...)
}

// handlers are the handlers of one sink.
type handlers struct {
	table   *Table
	sink    string
	handled []sinks.HandledType
}

// check reports the types of a pattern without a handler.
func (h *handlers) check(pattern string) error {
	isPattern := strings.HasSuffix(pattern, "*")
	missing := []string{pattern}
	if isPattern {
		missing = nil
		for _, typ := range h.table.types {
			if h.table.matches(pattern, typ) {
				missing = append(missing, typ)
			}
		}
	}
	missing = slices.DeleteFunc(missing, h.has)
	brings := func(typ sinks.HandledType) bool { return h.brings(pattern, typ) }
	switch {
	case len(missing) == 0 && (!isPattern || slices.ContainsFunc(h.handled, brings)):
		return nil
	case len(missing) == 0:
		return h.problem(pattern, "none that the pattern matches", "add a handler, or remove "+h.sink+" from the route")
	case isPattern:
		return h.problem(pattern, "not "+strings.Join(missing, ", "), "add handlers, or name the types in routes to "+h.sink+" instead of "+pattern)
	}
	return h.problem(pattern, "not "+pattern, "add a handler, or remove "+h.sink+" from the route")
}

func (h *handlers) problem(pattern, missing, hint string) error {
	names := make([]string, len(h.handled))
	for i, typ := range h.handled {
		names[i] = typ.Name
	}
	return fmt.Errorf("routes.%s: %w: %s handles %s, %s: %s", pattern, ErrNoHandler, h.sink, strings.Join(names, ", "), missing, hint)
}

// has reports whether there is a handler for a type.
func (h *handlers) has(name string) bool {
	return slices.ContainsFunc(h.handled, func(typ sinks.HandledType) bool {
		return slices.ContainsFunc(h.table.Names(name), func(n string) bool { return n == typ.Name || slices.Contains(typ.Aliases, n) })
	})
}

// brings reports whether a pattern matches one of the names of a handled type.
func (h *handlers) brings(pattern string, typ sinks.HandledType) bool {
	return slices.ContainsFunc(append([]string{typ.Name}, typ.Aliases...), func(name string) bool { return h.table.matches(pattern, name) })
}
