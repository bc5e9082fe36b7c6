// Package route says which sinks get a notification, by its type.
//
// A route is a pattern and the sinks that get what matches it. A pattern is a
// type ("order.placed"), the beginning of types ("customer.*" matches
// customer.moved and customer.address.changed), or "*" for all. Where several
// patterns match a type, it goes to the sinks of all of them, once to each.
package route

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
)

// Errors of a table.
var (
	ErrPattern     = errors.New("invalid route pattern")
	ErrUnknownSink = errors.New("route to an unknown sink")
	ErrNoSinks     = errors.New("route without sinks")
	ErrNoType      = errors.New("route matches no registered type")
)

// Table is a checked set of routes. It is immutable and safe for concurrent use.
type Table struct {
	patterns map[string][]string // pattern to sinks
}

// New checks routes, given as pattern to sinks, against the names of the sinks
// that exist and, unless types is nil, against the registered types and their
// aliases. All mistakes are reported at once.
func New(routes map[string][]string, sinks []string, types *registry.Registry) (*Table, error) {
	var problems []error
	for _, pattern := range slices.Sorted(maps.Keys(routes)) {
		if err := ValidatePattern(pattern); err != nil {
			problems = append(problems, err)
		}
		if types != nil && !matchesAny(pattern, types) {
			problems = append(problems, fmt.Errorf("%w: routes.%s; registered are %s", ErrNoType, pattern, strings.Join(namesOf(types), ", ")))
		}
		if len(routes[pattern]) == 0 {
			problems = append(problems, fmt.Errorf("%w: routes.%s: name at least one sink", ErrNoSinks, pattern))
		}
		for _, sink := range routes[pattern] {
			if !slices.Contains(sinks, sink) {
				problems = append(problems, fmt.Errorf("%w: routes.%s names %q; known sinks are %s",
					ErrUnknownSink, pattern, sink, strings.Join(slices.Sorted(slices.Values(sinks)), ", ")))
			}
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	t := &Table{patterns: make(map[string][]string, len(routes))}
	for pattern, to := range routes {
		t.patterns[pattern] = slices.Clone(to)
	}
	return t, nil
}

// ValidatePattern reports why a text is no pattern, as ErrPattern.
func ValidatePattern(pattern string) error {
	if pattern == "*" {
		return nil
	}
	if err := notification.ValidateType(strings.TrimSuffix(pattern, ".*")); err != nil {
		return fmt.Errorf("%w %q: use a type, a type's beginning followed by .*, or *: %w", ErrPattern, pattern, err)
	}
	return nil
}

// matchesAny says whether a pattern matches a registered type or an alias.
func matchesAny(pattern string, types *registry.Registry) bool {
	return slices.ContainsFunc(types.Types(), func(t registry.Info) bool {
		return slices.ContainsFunc(append(t.Aliases, t.Name), func(name string) bool { return Matches(pattern, name) })
	})
}

func namesOf(types *registry.Registry) []string {
	var names []string
	for _, t := range types.Types() {
		names = append(names, t.Name)
	}
	return names
}

// Sinks lists the sinks that get notifications of a type, in alphabetical order;
// none if no route matches.
func (t *Table) Sinks(typ string) []string {
	var to []string
	for pattern, sinks := range t.patterns {
		if Matches(pattern, typ) {
			to = append(to, sinks...)
		}
	}
	slices.Sort(to)
	return slices.Compact(to)
}

// Matches says whether a valid pattern matches a type.
func Matches(pattern, typ string) bool {
	if prefix, isPrefix := strings.CutSuffix(pattern, "*"); isPrefix {
		return strings.HasPrefix(typ, prefix)
	}
	return pattern == typ
}

// Filter selects the types that go to a sink.
func (t *Table) Filter(sink string) store.TypeFilter {
	return t.filter(func(to []string) bool { return slices.Contains(to, sink) })
}

// Unrouted selects the types that no route matches.
func (t *Table) Unrouted() store.TypeFilter {
	f := t.filter(func([]string) bool { return true })
	f.Except = !f.Except
	return f
}

// filter collects the patterns whose sinks are wanted.
func (t *Table) filter(wanted func(sinks []string) bool) store.TypeFilter {
	var f store.TypeFilter
	for _, pattern := range slices.Sorted(maps.Keys(t.patterns)) {
		if !wanted(t.patterns[pattern]) {
			continue
		}
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		switch {
		case pattern == "*":
			return store.AllTypes
		case isPrefix:
			f.Prefixes = append(f.Prefixes, prefix)
		default:
			f.Names = append(f.Names, pattern)
		}
	}
	return f
}
