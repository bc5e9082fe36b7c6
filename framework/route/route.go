// Package route says which sinks get a notification, by its type.
//
// A route is a pattern and the sinks that get what matches it. A pattern is a
// type ("order.placed"), the beginning of types ("customer.*" matches
// customer.moved and customer.address.changed), or "*" for all. Where several
// patterns match a type, it goes to the sinks of all of them, once to each.
//
// A rule may have a condition on the notification, and may pick what of the payload
// its sink gets: see [Rule]. Where several rules lead to one sink, the first whose
// condition holds counts: a type's before those of its beginnings, longer ones
// first, and in the order in which they are written.
//
// A type's aliases, the older names under which it may be stored, are routed as the
// type is: a pattern that matches one of its names matches it.
//
// The files in the order in which to read them: route.go, alias.go, handlers.go,
// rule.go, path.go, expression.go.
package route

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
)

// Errors of a table.
var (
	ErrPattern     = errors.New("invalid route pattern")
	ErrUnknownSink = errors.New("names the unknown sink")
	ErrNoSinks     = errors.New("has no sinks")
	ErrNoType      = errors.New("matches no registered type")
	ErrExpression  = errors.New("expression")
)

// Table is a checked set of routes. It is immutable and safe for concurrent use.
type Table struct {
	rules map[string][]*rule  // of each pattern
	names map[string][]string // of types that have aliases, by each of them
	types []string            // those that are registered
}

// New checks routes against the names of the sinks that exist and, unless types is
// nil, against the registered types. An alias is routed as its type, as the types are
// registered now. All mistakes are reported at once.
func New(routes Routes, sinks []string, types *registry.Registry) (*Table, error) {
	var problems []error
	t := &Table{rules: make(map[string][]*rule, len(routes)), names: namesOfTypes(types)}
	if types != nil {
		t.types = namesOf(types)
	}
	for _, pattern := range slices.Sorted(maps.Keys(routes)) {
		if err := ValidatePattern(pattern); err != nil {
			problems = append(problems, err)
		}
		if types != nil && !matchesAny(pattern, types) {
			problems = append(problems, fmt.Errorf("routes.%s: %w; registered are %s", pattern, ErrNoType, strings.Join(namesOf(types), ", ")))
		}
		if len(routes[pattern]) == 0 {
			problems = append(problems, fmt.Errorf("routes.%s: %w: name at least one", pattern, ErrNoSinks))
		}
		for _, r := range routes[pattern] {
			if !slices.Contains(sinks, r.Sink) {
				problems = append(problems, fmt.Errorf("routes.%s: %w %q; known are %s",
					pattern, ErrUnknownSink, r.Sink, strings.Join(slices.Sorted(slices.Values(sinks)), ", ")))
			}
			compiled, err := r.compile(pattern)
			if err != nil {
				problems = append(problems, fmt.Errorf("routes.%s to %s: %w", pattern, r.Sink, err))
			}
			t.rules[pattern] = append(t.rules[pattern], compiled)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
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

// Types are those that routes name in full, in their order.
func (t *Table) Types() (names []string) {
	for pattern := range t.rules {
		if !strings.HasSuffix(pattern, "*") {
			names = append(names, pattern)
		}
	}
	slices.Sort(names)
	return names
}

// Sinks lists the sinks to which routes of a type lead, in alphabetical order,
// whatever their conditions; none if no route matches.
func (t *Table) Sinks(typ string) []string {
	var to []string
	for pattern, rules := range t.rules {
		if t.matches(pattern, typ) {
			for _, r := range rules {
				to = append(to, r.Sink)
			}
		}
	}
	slices.Sort(to)
	return slices.Compact(to)
}

// matches says whether a pattern matches a type by one of its names: what is stored
// under an older one goes where the present one goes, and a pattern that names an
// older one still means the type.
func (t *Table) matches(pattern, typ string) bool {
	return slices.ContainsFunc(t.Names(typ), func(name string) bool { return Matches(pattern, name) })
}

// Matches says whether a valid pattern matches the name of a type; see
// [Table.Names] for its aliases.
func Matches(pattern, typ string) bool {
	if prefix, isPrefix := strings.CutSuffix(pattern, "*"); isPrefix {
		return strings.HasPrefix(typ, prefix)
	}
	return pattern == typ
}

// Filter selects the types that go to a sink, if its conditions hold.
func (t *Table) Filter(sink string) notification.TypeFilter {
	return t.filter(func(rules []*rule) bool {
		return slices.ContainsFunc(rules, func(r *rule) bool { return r.Sink == sink })
	})
}

// Filters are those of all sinks that routes name.
func (t *Table) Filters() map[string]notification.TypeFilter {
	filters := make(map[string]notification.TypeFilter)
	for _, rules := range t.rules {
		for _, r := range rules {
			if _, done := filters[r.Sink]; !done {
				filters[r.Sink] = t.Filter(r.Sink)
			}
		}
	}
	return filters
}

// Unrouted selects the types that no route matches.
func (t *Table) Unrouted() notification.TypeFilter {
	f := t.filter(func([]*rule) bool { return true })
	f.Except = !f.Except
	return f
}

// filter collects the patterns whose rules are wanted, and the other names of the
// types that they match: stores know nothing of aliases.
func (t *Table) filter(wanted func([]*rule) bool) notification.TypeFilter {
	var f notification.TypeFilter
	for _, pattern := range slices.Sorted(maps.Keys(t.rules)) {
		if !wanted(t.rules[pattern]) {
			continue
		}
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		switch {
		case pattern == "*":
			return notification.AllTypes
		case isPrefix:
			f.Prefixes = append(f.Prefixes, prefix)
		default:
			f.Names = append(f.Names, pattern)
		}
	}
	for name := range t.names {
		if !f.Matches(name) && slices.ContainsFunc(t.names[name], f.Matches) {
			f.Names = append(f.Names, name)
		}
	}
	slices.Sort(f.Names)
	return f
}
