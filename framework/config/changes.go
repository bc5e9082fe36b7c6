package config

import (
	"maps"
	"reflect"
	"slices"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
)

// Changes is what differs between two configurations.
type Changes struct {
	// Sinks are those that are new, changed or gone, in alphabetical order.
	Sinks []string
	// Routes says that they differ.
	Routes bool
	// More says that there is more, which takes another forwarder.
	More bool
}

// None says that there are no differences.
func (c Changes) None() bool { return len(c.Sinks) == 0 && !c.Routes && !c.More }

// ChangesTo compares a configuration with the one that is to follow it.
func (c *Config) ChangesTo(next *Config) Changes {
	changes := Changes{
		Routes: !reflect.DeepEqual(c.Routes, next.Routes),
		More:   !reflect.DeepEqual(c.rest(), next.rest()),
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

// Keep has a configuration use the sinks that were made for the one before, where their
// own settings are the same, and the files that these name.
func (c *Config) Keep(before *Config) {
	for name, sink := range c.Sinks {
		if old := before.Sinks[name]; old.Sink != nil && sink.Kind == old.Kind &&
			reflect.DeepEqual(sink.settings, old.settings) && maps.Equal(sink.contents, old.contents) {
			sink.Sink = old.Sink
			c.Sinks[name] = sink
		}
	}
}

// Delivering is the part of a forwarder's configuration that one that runs can reload.
func (c *Config) Delivering() (map[string]forwarder.Sink, route.Routes) {
	to := make(map[string]forwarder.Sink, len(c.Sinks))
	for name, sink := range c.Sinks {
		its := sink.forwarder()
		its.Middleware, its.Hooks = c.options.Middleware, c.options.Hooks
		to[name] = its
	}
	return to, c.routes()
}

// compared is a sink's settings without what was made of them.
func (s Sink) compared() Sink {
	s.Sink, s.With = nil, With{}
	return s
}

// rest is all but sinks and routes.
func (c *Config) rest() Config {
	rest := *c
	rest.Sinks, rest.Routes, rest.options = nil, nil, Options{}
	return rest
}
