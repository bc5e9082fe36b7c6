package admin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
)

// Type is a notification type: what the outbox has of it, and where it goes.
type Type struct {
	Type string `json:"type"`
	// Versions are the versions found, in order, and OccurredOn is when the newest row of any
	// of them occurred.
	Versions   []TypeVersion `json:"versions"`
	OccurredOn time.Time     `json:"occurred_on,omitzero"`
	// Registered is what the program knows of the type; nil if it does not know it, as of Waybill's own
	// types.
	Registered *RegisteredType `json:"registered,omitempty"`
	// Unrouted is what happens to it without a route: park or ignore; "" if it has a route, or
	// if that is unknown.
	Unrouted string      `json:"unrouted,omitempty"`
	Sinks    []TypeRoute `json:"sinks"`
}

// TypeVersion is a version of a type in the log and among parked deliveries.
type TypeVersion struct {
	Version int   `json:"version"`
	Rows    int64 `json:"rows"`
	Parked  int64 `json:"parked"`
	// Decodes reports whether the program has a decoder for it; nil if the program has no types, or if
	// the type is Waybill's own.
	Decodes *bool `json:"decodes,omitempty"`
}

// RegisteredType is a type in the program's registry.
type RegisteredType struct {
	Type    string   `json:"type"` // its present name
	GoType  string   `json:"go_type"`
	Version int      `json:"version"` // the version that it writes
	Oldest  int      `json:"oldest"`  // the oldest version that it reads
	Aliases []string `json:"aliases"`
}

// TypeRoute is a sink and the rules that lead a type there.
type TypeRoute struct {
	Sink string `json:"sink"`
	// Routes are empty if another forwarder's configuration has them.
	Routes []RouteRule `json:"routes"`
}

// RouteRule is a rule that leads a type to a sink.
type RouteRule struct {
	Route   string            `json:"route"`
	When    string            `json:"when,omitempty"`
	Payload map[string]string `json:"payload,omitempty"`
}

// RulesOf returns the rules that lead a type along a path.
func RulesOf(path *route.Path, typ string) (rules []RouteRule) {
	for _, step := range path.Steps(typ) {
		rules = append(rules, RouteRule{step.Pattern, step.When, step.Payload})
	}
	return rules
}

// Types describes, by name, the counted types, those that routes name in full, the registered
// ones, and further names. registered may be nil.
func Types(counts []store.TypeCount, routing Routing, registered *registry.Registry, names ...string) []Type {
	found := make(map[string][]store.TypeCount)
	if routing.Routes != nil {
		names = append(names, routing.Routes.Types()...)
	}
	for _, name := range names {
		found[name] = nil
	}
	if registered != nil {
		for _, known := range registered.Types() {
			found[known.Name] = nil
		}
	}
	for _, c := range counts {
		found[c.Type] = append(found[c.Type], c)
	}
	types := make([]Type, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		t := Type{Type: name, Versions: []TypeVersion{}, Sinks: []TypeRoute{}, Registered: registeredType(registered, name)}
		if routing.Routes != nil {
			t.route(routing)
		}
		t.add(found[name], registered != nil && !notification.IsReserved(name))
		types = append(types, t)
	}
	return types
}

// registeredType returns what the program knows of a type, by its name or an alias.
func registeredType(types *registry.Registry, name string) *RegisteredType {
	if types == nil {
		return nil
	}
	known, ok := types.Lookup(name)
	if !ok {
		return nil
	}
	return &RegisteredType{known.Name, known.GoType, known.Version, known.Oldest, append([]string{}, known.Aliases...)}
}

// route adds where the type goes.
func (t *Type) route(routing Routing) {
	for _, sink := range routing.Routes.Sinks(t.Type) {
		t.Sinks = append(t.Sinks, TypeRoute{sink, RulesOf(routing.Routes.To(sink), t.Type)})
	}
	for _, sink := range routing.takenElsewhere(t.Type) {
		t.Sinks = append(t.Sinks, TypeRoute{sink, []RouteRule{}})
	}
	switch {
	case len(t.Sinks) > 0:
	case routing.Routes.Unrouted().Matches(t.Type):
		t.Unrouted = routing.Unrouted
	default:
		t.Unrouted = "ignore"
	}
}

// add adds the versions that were found.
func (t *Type) add(counts []store.TypeCount, judge bool) {
	for _, c := range counts {
		v := TypeVersion{Version: c.Version, Rows: c.Rows, Parked: c.Parked}
		if judge {
			decodes := t.Registered.decodes(c.Version)
			v.Decodes = &decodes
		}
		t.Versions = append(t.Versions, v)
		if c.OccurredOn.After(t.OccurredOn) {
			t.OccurredOn = c.OccurredOn
		}
	}
}

// Rows returns the number of rows of all versions in the log.
func (t *Type) Rows() (n int64) {
	for _, v := range t.Versions {
		n += v.Rows
	}
	return n
}

// Parked returns the number of parked deliveries of all versions.
func (t *Type) Parked() (n int64) {
	for _, v := range t.Versions {
		n += v.Parked
	}
	return n
}

// decodes reports whether the program can read a version.
func (r *RegisteredType) decodes(version int) bool {
	return r != nil && r.Oldest <= version && version <= r.Version
}

// InProgram returns Known and Undecodable in one line.
func (t *Type) InProgram() string {
	text := t.Known()
	if not := t.Undecodable(); len(not) > 0 {
		text += "; cannot decode " + strings.Join(not, ", ")
	}
	return text
}

// Known returns what the program knows of the type, such as "shop.OrderPlaced v2, reads from v1".
func (t *Type) Known() string { return t.Registered.text(t.Type) }

// Undecodable returns the versions found that the program cannot decode, such as v1.
func (t *Type) Undecodable() (not []string) {
	for _, v := range t.Versions {
		if v.Decodes != nil && !*v.Decodes {
			not = append(not, fmt.Sprintf("v%d", v.Version))
		}
	}
	return not
}

func (r *RegisteredType) text(name string) string {
	switch {
	case r == nil && notification.IsReserved(name):
		return "Waybill's own"
	case r == nil:
		return "unknown"
	case r.Type != name:
		return "alias of " + r.Type
	case r.Oldest < r.Version:
		return fmt.Sprintf("%s v%d, reads from v%d", r.GoType, r.Version, r.Oldest)
	}
	return fmt.Sprintf("%s v%d", r.GoType, r.Version)
}

// When returns the condition under which the type goes to the sink; "" if it always does.
func (r TypeRoute) When() string {
	var conditions []string
	for _, rule := range r.Routes {
		if rule.When == "" {
			return "" // this rule always holds; the others only choose payloads
		}
		conditions = append(conditions, rule.When)
	}
	return strings.Join(conditions, " or ")
}
