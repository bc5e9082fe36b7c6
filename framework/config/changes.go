package config

import (
	"context"
	"maps"
	"reflect"
	"slices"

	"github.com/waybill-go/waybill/framework/forwarder"
)

// Changes is what differs between two configurations.
type Changes struct {
	// Sinks are those that are new, changed or gone, in alphabetical order.
	Sinks []string
	// Routes says that they differ.
	Routes bool
	// Schedules says that they differ: [schedule.Scheduler.Reload] takes those over that
	// Config.Timetable returns.
	Schedules bool
	// Observe says that it differs: hosts and auth are taken over by
	// [dashboard.Dashboard.Change], and the rest counts from the next start of the program.
	Observe bool
	// Databases says that those of a fleet differ: [fleet.Fleet.Follow] takes them over.
	Databases bool
	// More says that there is more, such as another database, which takes another
	// forwarder.
	More bool
}

// None says that there are no differences.
func (c Changes) None() bool {
	return len(c.Sinks) == 0 && !c.Routes && !c.Schedules && !c.Observe && !c.Databases && !c.More
}

// ChangesTo compares a configuration with the one that is to follow it.
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

// Reload reads the configuration again, from where it came from, and has a forwarder that
// was made of it take over what differs: see [forwarder.Forwarder.Reload]. It returns the
// configuration that holds from then on, and what differs. That is c itself where nothing
// does, where something is wrong, which is the error, and where Changes.More: then
// nothing was taken over, and another forwarder, made of what Load returns now, is to run
// in place of this one.
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
	if err := f.Reload(ctx, next.destinations(), next.routes()); err != nil {
		return c, Changes{}, err
	}
	return next, changes, nil
}

// keep has a configuration use the sinks that were made for the one before, where their
// own settings are the same, and the files that these name.
func (c *Config) keep(before *Config) {
	for name, sink := range c.Sinks {
		if old := before.Sinks[name]; old.Sink != nil && sink.Kind == old.Kind &&
			reflect.DeepEqual(sink.settings, old.settings) && maps.Equal(sink.contents, old.contents) {
			sink.Sink = old.Sink
			c.Sinks[name] = sink
		}
	}
}

// destinations are the sinks as the engine takes them.
func (c *Config) destinations() map[string]forwarder.Sink {
	to := make(map[string]forwarder.Sink, len(c.Sinks))
	for name, sink := range c.Sinks {
		its := sink.forwarder()
		its.Middleware, its.Hooks = c.options.Middleware, c.options.Hooks
		to[name] = its
	}
	return to
}

// compared is a sink's settings without what was made of them.
func (s Sink) compared() Sink {
	s.Sink, s.With = nil, With{}
	return s
}

// rest is all but sinks, routes, schedules, databases and observe.
func (c *Config) rest() Config {
	rest := *c
	rest.Sinks, rest.Routes, rest.Schedules, rest.Databases, rest.Observe, rest.options, rest.source, rest.loader = nil, nil, nil, nil, Observe{}, Options{}, Source{}, nil
	return rest
}
