// Package route decides which sinks get a notification, by its type.
//
// A route is a pattern and the sinks that get the types it matches. A pattern is a type
// ("order.placed"), a prefix ("customer.*" matches customer.moved and
// customer.address.changed), or "*" for all types. If several patterns match a type, it goes
// to the sinks of all of them, once to each:
//
//	route.Routes{
//		"order.placed": route.To("warehouse", "mail"),
//		"order.*":      {{Sink: "audit", When: `payload.total > 100`}},
//	}
//
// A rule may have a condition on the notification, and may pick parts of the payload for its
// sink: see [Rule]. If several rules lead to the same sink, the first one whose condition holds
// applies. Rules of the type itself come first, then those of longer prefixes before shorter
// ones; rules of one pattern keep their order.
//
// Types that begin with "_" are Waybill's own: see [notification.ReservedPrefix]. "*" does not match
// them.
//
// The aliases of a type, which are its older names, are routed like the type: a pattern that
// matches one of its names matches it.
package route

import (
	"cmp"
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
	rules map[string][]*rule  // by pattern
	names map[string][]string // all names of types with aliases, by each name
	types []string            // the registered types

	registry *registry.Registry // nil: the types are not known
}

// New checks routes against the names of the existing sinks and, unless types is nil, against
// the registered types and the names of others that may be in the log. Aliases are those registered at the time of the call. It reports all
// mistakes at once.
func New(routes Routes, sinks []string, types *registry.Registry, others ...string) (*Table, error) {
	var problems []error
	t := &Table{rules: make(map[string][]*rule, len(routes)), names: namesOfTypes(types), registry: types}
	if types != nil {
		for _, info := range types.Types() {
			t.types = append(t.types, info.Name)
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(routes)) {
		if err := ValidatePattern(pattern); err != nil {
			problems = append(problems, err)
		}
		if types != nil && !notification.IsReserved(pattern) && !slices.ContainsFunc(slices.Concat(t.types, others), func(typ string) bool { return t.matches(pattern, typ) }) {
			problems = append(problems, fmt.Errorf("routes.%s: %w; registered are %s", pattern, ErrNoType, cmp.Or(strings.Join(t.types, ", "), "none: register it")))
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

// ValidatePattern reports why a text is not a valid pattern, as ErrPattern.
func ValidatePattern(pattern string) error {
	if pattern == "*" {
		return nil
	}
	if err := notification.ValidateType(strings.TrimSuffix(pattern, ".*")); err != nil {
		return fmt.Errorf("%w %q: use a type, a prefix followed by .*, or *: %w", ErrPattern, pattern, err)
	}
	return nil
}

// Types returns the types that routes name in full, in alphabetical order.
func (t *Table) Types() (names []string) {
	for pattern := range t.rules {
		if !strings.HasSuffix(pattern, "*") {
			names = append(names, pattern)
		}
	}
	slices.Sort(names)
	return names
}

// Sinks returns the sinks to which a type is routed, whatever the conditions, in alphabetical
// order; none if no route matches.
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

// matches reports whether a pattern matches one of the names of a type, so that aliases are
// routed like the type.
func (t *Table) matches(pattern, typ string) bool {
	return slices.ContainsFunc(t.Names(typ), func(name string) bool { return Matches(pattern, name) })
}

// Matches reports whether a valid pattern matches this name of a type. It does not consider
// aliases: see [Table.Names].
func Matches(pattern, typ string) bool {
	if pattern == "*" {
		return !notification.IsSpecial(typ)
	}
	if prefix, isPrefix := strings.CutSuffix(pattern, "*"); isPrefix {
		return strings.HasPrefix(typ, prefix)
	}
	return pattern == typ
}

// Filter returns a filter of the types that are routed to a sink, whatever the conditions. If both "*"
// and a pattern of reserved types or alerts lead to the sink, the filter selects all types; the sink's [Path]
// passes by the others.
func (t *Table) Filter(sink string) notification.TypeFilter {
	return t.filter(func(rules []*rule) bool {
		return slices.ContainsFunc(rules, func(r *rule) bool { return r.Sink == sink })
	})
}

// Filters returns the filters of all sinks with a route.
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

// Unrouted returns a filter of the types that no route matches. With a route for "*" it selects nothing:
// no filter can tell the reserved types without a route from those with one, and reading all of
// them for what nearly never exists would cost every program with such a route a cursor.
func (t *Table) Unrouted() notification.TypeFilter {
	f := t.filter(func([]*rule) bool { return true })
	if f.Except {
		return notification.TypeFilter{}
	}
	f.Except = true
	return f
}

// ordinary selects what "*" matches.
var ordinary = notification.TypeFilter{Names: []string{notification.AlertCleared, notification.AlertRaised}, Prefixes: []string{notification.ReservedPrefix}, Except: true}

// leadsSpecial reports whether a pattern other than "*" matches reserved types or alerts.
func leadsSpecial(pattern string) bool {
	return notification.IsReserved(pattern) || pattern != "*" && (Matches(pattern, notification.AlertRaised) || Matches(pattern, notification.AlertCleared))
}

// filter combines the wanted patterns. Its Except is set if "*" is one of them. It adds the other names
// of the types they match, since stores do not know aliases.
func (t *Table) filter(wanted func([]*rule) bool) notification.TypeFilter {
	var f notification.TypeFilter
	var all, special bool
	for _, pattern := range slices.Sorted(maps.Keys(t.rules)) {
		if !wanted(t.rules[pattern]) {
			continue
		}
		all, special = all || pattern == "*", special || leadsSpecial(pattern)
		if prefix, isPrefix := strings.CutSuffix(pattern, "*"); isPrefix {
			f.Prefixes = append(f.Prefixes, prefix)
		} else {
			f.Names = append(f.Names, pattern)
		}
	}
	switch {
	case all && special:
		return notification.AllTypes
	case all:
		return ordinary
	}
	for name := range t.names {
		if !f.Matches(name) && slices.ContainsFunc(t.names[name], f.Matches) {
			f.Names = append(f.Names, name)
		}
	}
	slices.Sort(f.Names)
	return f
}
