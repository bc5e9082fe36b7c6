package config

import (
	"reflect"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/config/internal/keys"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/sinks"
)

// LoadChannels reads the routes, the settings of deliveries, and how consumers get them. It builds no sinks,
// and needs neither the variables and files that the settings of sinks name, nor a database.
func LoadChannels(source Source, options Options) (*Config, error) {
	return read(source, options, []string{"outbox", "forwarder", "sinks", "routes", "types"}, func(l *loader, c *Config) {
		l.checkTypes(c)
		l.checkForwarder(c, l.checkRoutes(c))
		aside := *l // whether the settings are right does not matter
		aside.lenient = true
		aside.report = &report{file: source.File}
		aside.outside.report = aside.report
		for name, sink := range c.Sinks {
			at := keys.Join("sinks", name)
			kind, known := c.options.Kinds.Kind(sink.Kind)
			if !known {
				l.reportKind(sink.Kind, at, c.options.Kinds.Names())
				continue
			}
			sink.settings = kind.Config()
			aside.decode(sink.With.node, reflect.ValueOf(sink.settings).Elem(), keys.Join(at, "with"))
			if _, ok := sink.settings.(sinks.Described); !ok { // the sink may be
				sink.Sink.Sink, _ = kind.Build(c.instance(name), func(settings any) error {
					aside.decode(sink.With.node, reflect.ValueOf(settings).Elem(), keys.Join(at, "with"))
					return nil
				})
			}
			c.Sinks[name] = sink
		}
	})
}

// Channels returns how consumers get the notifications of each sink that describes it, by the sink's name.
func (c *Config) Channels() map[string]sinks.Channel {
	channels := make(map[string]sinks.Channel)
	for name, sink := range c.Sinks {
		described, ok := sink.settings.(sinks.Described)
		if !ok {
			described, ok = sink.Sink.Sink.(sinks.Described)
		}
		if !ok {
			continue
		}
		channel := described.Channel()
		channel.Hosts = slices.DeleteFunc(slices.Clone(channel.Hosts), isReference)
		if isReference(channel.Address) {
			channel.Address = ""
		}
		if sink.Collect != (settings.Collect{}) {
			channel = channel.Collected()
		}
		channels[name] = channel
	}
	return channels
}

// isReference reports whether a value names a variable or a file that is not here.
func isReference(value string) bool {
	return strings.Contains(value, "${") || strings.HasPrefix(value, filePrefix)
}
