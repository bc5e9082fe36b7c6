package config

import (
	"context"
	"maps"
	"reflect"
	"slices"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/settings"
)

// Changes are the differences between two configurations.
type Changes struct {
	// Sinks are the new, changed and removed sinks, in alphabetical order.
	Sinks []string
	// Routes reports whether the routes differ.
	Routes bool
	// Schedules reports whether the schedules differ. Pass those of Config.Timetable to
	// [schedule.Scheduler.Reload] to apply them.
	Schedules bool
	// Observe reports whether observe differs. [dashboard.Dashboard.Change] applies hosts and
	// auth; other changes need a restart of the program.
	Observe bool
	// Databases reports whether the databases of a fleet differ; [fleet.Fleet.Follow] applies
	// them.
	Databases bool
	// More reports whether anything else differs, such as the database, which needs a new
	// forwarder.
	More bool
}

// None reports whether there are no differences.
func (c Changes) None() bool {
	return len(c.Sinks) == 0 && !c.Routes && !c.Schedules && !c.Observe && !c.Databases && !c.More
}

// ChangesTo returns the differences from c to next.
func (c *Config) ChangesTo(next *Config) Changes {
	changes := Changes{
		Routes:    !reflect.DeepEqual(c.Routes, next.Routes),
		Schedules: !reflect.DeepEqual(c.Schedules, next.Schedules),
		Observe:   !reflect.DeepEqual(c.Observe, next.Observe),
		Databases: !reflect.DeepEqual(c.Databases, next.Databases),
		More:      !reflect.DeepEqual(c.rest(), next.rest()) || len(c.Databases) == 0 != (len(next.Databases) == 0),
	}
	for name, sink := range next.Sinks {
		if old, ok := c.Sinks[name]; !ok || !reflect.DeepEqual(old.compared(), sink.compared()) {
			changes.Sinks = append(changes.Sinks, name)
		}
	}
	for name := range c.Sinks {
		if _, ok := next.Sinks[name]; !ok {
			changes.Sinks = append(changes.Sinks, name)
		}
	}
	slices.Sort(changes.Sinks)
	return changes
}

// Reload reads the configuration again from its source, and applies changed sinks and routes to
// a running forwarder that was made from c: see [forwarder.Forwarder.Reload]. It returns the
// configuration that is now in effect, and the differences.
//
// It returns c, and applies nothing, if nothing differs, if there is an error, or if
// Changes.More is true. In the last case, [Load] the configuration, and replace the forwarder
// with a new one.
func (c *Config) Reload(ctx context.Context, f *forwarder.Forwarder) (*Config, Changes, error) {
	next, err := Load(c.source, c.options)
	if err == nil {
		err = next.Supplied()
	}
	if err != nil {
		return c, Changes{}, err
	}
	changes := c.ChangesTo(next)
	if changes.None() || changes.More {
		return c, changes, nil
	}
	next.keep(c)
	if err := f.Reload(ctx, next.destinations(), next.routing()); err != nil {
		return c, Changes{}, err
	}
	return next, changes, nil
}

// keep takes over the built sinks of the previous configuration whose settings, and the files
// that these name, have not changed.
func (c *Config) keep(before *Config) {
	for name, sink := range c.Sinks {
		if old := before.Sinks[name]; old.Sink.Sink != nil && sink.Kind == old.Kind &&
			reflect.DeepEqual(sink.settings, old.settings) && maps.Equal(sink.contents, old.contents) {
			sink.Sink.Sink = old.Sink.Sink
			c.Sinks[name] = sink
		}
	}
}

// destinations returns the sinks as the forwarder takes them.
func (c *Config) destinations() map[string]forwarder.Sink {
	to := make(map[string]forwarder.Sink, len(c.Sinks))
	for name, sink := range c.Sinks {
		its := sink.Sink
		its.Middleware, its.Hooks = c.options.Middleware, c.options.Hooks
		to[name] = its
	}
	return to
}

// compared returns a sink's settings without what was built from them.
func (s Sink) compared() Sink {
	s.Sink.Sink, s.With = nil, With{}
	return s
}

// rest returns the configuration without sinks, routes, schedules, databases and observe.
func (c *Config) rest() Config {
	rest := *c
	rest.Sinks, rest.Routes, rest.Schedules, rest.Databases, rest.Observe, rest.private, rest.options, rest.source, rest.loader, rest.contracts = nil, nil, nil, nil, settings.Observe{}, privacy.Config{}, Options{}, Source{}, nil, nil
	return rest
}
