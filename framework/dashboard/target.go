package dashboard

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/dashboard/internal/veil"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/duration"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/sinks"
)

// TargetOf returns what the configuration of a forwarder says about the outbox to show: Store, Routing, Types,
// Contracts, Channels, Privacy and Configuration. The caller sets the other fields. Configuration has the settings of
// deliveries and the routes, but not the settings of the sinks themselves, which are Go code. A
// configuration with mistakes in its routes gives a target without Routing.
func TargetOf(c forwarder.Config) Target {
	c = c.WithDefaults()
	t := Target{
		Types: c.Types, Channels: make(map[string]sinks.Channel), Privacy: c.Privacy,
		Contracts:     sync.OnceValues(func() (*contract.Set, error) { return contract.FromTypes(c.Types) }),
		Configuration: func() ([]byte, error) { return configurationOf(c) },
	}
	t.Store, _ = c.Store.(admin.Store)
	if routes, err := c.Table(); err == nil {
		t.Routing = admin.Routing{
			Routes:      routes,
			MaxAttempts: func(sink, typ string) int { policy, _ := c.Sinks[sink].Retry.For(typ); return policy.Attempts() },
			Collect:     func(sink string) settings.Collect { return c.Sinks[sink].Collect },
			Unrouted:    string(c.Unrouted),
		}
	}
	for name, s := range c.Sinks {
		if described, ok := s.Sink.(sinks.Described); ok {
			t.Channels[name] = described.Channel()
			if s.Collect.On() {
				t.Channels[name] = t.Channels[name].Collected()
			}
		}
	}
	return t
}

// Masked returns an outbox as operators see it: with hidden what masks, as settings.Observe.Masks has them, name in the
// errors and receipts of receivers. It is for programs that pass these on, such as to an assistant.
func Masked(s admin.Store, r admin.Routing, hidden map[string][]string) admin.Store {
	return veil.Of(&target.Target{Store: s, Routing: r}, masks.Of(hidden), access.User{Role: access.Operator})
}

// configuration is what is shown of a forwarder's configuration, with the keys of a file.
type configuration struct {
	Outbox struct {
		Lanes          int           `yaml:"lanes"`
		Retention      time.Duration `yaml:"retention"`
		InboxRetention time.Duration `yaml:"inbox_retention"`
	} `yaml:"outbox"`
	Forwarder forwarder.Config     `yaml:"forwarder"`
	Sinks     map[string]shownSink `yaml:"sinks"`
	Routes    route.Routes         `yaml:"routes"`
}

type shownSink struct {
	Go             string `yaml:"go"` // the type of the sink
	forwarder.Sink `yaml:",inline"`
}

// configurationOf returns a configuration with its defaults as YAML, without what is not set.
func configurationOf(c forwarder.Config) ([]byte, error) {
	shown := configuration{Forwarder: c, Sinks: make(map[string]shownSink), Routes: c.Routes}
	shown.Outbox.Lanes, shown.Outbox.Retention, shown.Outbox.InboxRetention = c.Lanes, c.Retention, c.InboxRetention
	for name, s := range c.Sinks {
		s.Retry.Types = maps.Clone(s.Retry.Types)
		for pattern, policy := range s.Retry.Types {
			s.Retry.Types[pattern] = policy.Over(s.Retry)
		}
		shown.Sinks[name] = shownSink{fmt.Sprintf("%T", s.Sink), s}
	}
	var document yaml.Node
	if err := document.Encode(shown); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	omitUnset(&document)
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	err := encoder.Encode(&document)
	return b.Bytes(), cmp.Or(err, encoder.Close())
}

// omitUnset removes the keys without a value from mappings, and zero units from durations.
func omitUnset(n *yaml.Node) {
	for _, below := range n.Content {
		omitUnset(below)
	}
	if d, err := time.ParseDuration(n.Value); err == nil && n.Tag == "!!str" {
		n.Value = duration.Text(d)
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	var kept []*yaml.Node
	for pair := range slices.Chunk(n.Content, 2) {
		value := pair[1]
		unset := len(value.Content) == 0 && slices.Contains([]string{"", "0", "null", "false", "0s"}, value.Value)
		if !unset {
			kept = append(kept, pair...)
		}
	}
	n.Content = kept
}
